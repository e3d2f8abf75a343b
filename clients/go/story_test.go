// Three clusters, an application that moves for a newcomer, and a cluster that is drained: the flagship story in Go.
package drover_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	drover "example.com/drover"
)

var clusters = []struct {
	provider string
	priority int32
	name     string
}{{"onprem", 1, "private-a"}, {"onprem", 1, "private-b"}, {"aws", 5, "public-c"}}

const manifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  replicas: 2
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      containers: [{name: c, image: registry.example/app, resources: {requests: {cpu: 1500m, memory: 64Mi}}}]
`

type answer interface {
	StatusCode() int
	GetBody() []byte
}

// must returns the answer of a request that was accepted.
func must[A answer](got A, err error) A {
	if err != nil {
		panic(err)
	}
	if got.StatusCode() >= 300 {
		panic(fmt.Sprintf("%d: %s", got.StatusCode(), got.GetBody()))
	}
	return got
}

func named(name string) drover.Metadata { return drover.Metadata{Name: name} }

type story struct {
	ctx context.Context
	api *drover.ClientWithResponses
}

// finished waits until the operation has ended, and returns its moves.
func (s story) finished(operation *drover.Operation) []string {
	for range 240 {
		operation = must(s.api.OperationGetWithResponse(s.ctx, operation.Id, nil)).JSON200
		if operation.FinishedAt != nil {
			break
		}
		time.Sleep(250 * time.Millisecond)
	}
	if operation.State != drover.OperationStateSucceeded {
		panic(fmt.Sprintf("%s: %s", operation.Kind, operation.Message))
	}
	var moves []string
	if operation.Moves != nil {
		for _, move := range *operation.Moves {
			moves = append(moves, move.App+" to "+move.To)
		}
	}
	return moves
}

// register registers the clusters, and waits until Drover knows their room.
func (s story) register() {
	files, err := filepath.Glob(filepath.Join(os.Getenv("DROVER_KUBECONFIGS"), "*.kubeconfig"))
	if err != nil || len(files) != len(clusters) {
		panic(fmt.Sprintf("DROVER_KUBECONFIGS must be a folder with %d kubeconfigs: %v", len(clusters), err))
	}
	for i, cluster := range clusters {
		if i == 0 || clusters[i-1].provider != cluster.provider {
			spec := &drover.ClusterProviderSpec{Priority: &cluster.priority}
			must(s.api.ClusterProviderCreateWithResponse(s.ctx, nil, drover.ClusterProvider{Metadata: named(cluster.provider), Spec: spec}))
		}
		content, err := os.ReadFile(files[i])
		if err != nil {
			panic(err)
		}
		file := base64.StdEncoding.EncodeToString(content)
		must(s.api.ClusterCreateWithResponse(s.ctx, cluster.provider, nil, drover.ClusterUpload{Metadata: named(cluster.name), File: &file}))
	}
	view := "capacity"
	for range 240 {
		ready := 0
		for _, known := range *must(s.api.ClusterCapacityListWithResponse(s.ctx, &drover.ClusterCapacityListParams{View: &view})).JSON200 {
			if known.State == "Ready" && len(known.Nodes) > 0 {
				ready++
			}
		}
		if ready == len(clusters) {
			return
		}
		time.Sleep(250 * time.Millisecond)
	}
	panic("the clusters did not become ready")
}

// deploy deploys an application of two pods of 1.5 CPUs each, and returns the moves that made room for it.
func (s story) deploy(name string, where []string, movable bool) []string {
	ctx, api := s.ctx, s.api
	composite := drover.CompositeApp{Metadata: named(name), Spec: drover.CompositeAppSpec{CompositeAppVersion: "v1"}}
	must(api.CompositeAppCreateWithResponse(ctx, "shop", nil, composite))
	file := base64.StdEncoding.EncodeToString([]byte(strings.ReplaceAll(manifest, "NAME", name)))
	must(api.AppCreateWithResponse(ctx, "shop", name, "v1", nil, drover.AppUpload{Metadata: named(name), File: &file}))
	profile := drover.CompositeProfile{Metadata: named("profile")}
	must(api.CompositeProfileCreateWithResponse(ctx, "shop", name, "v1", nil, profile))
	run := drover.DeploymentIntentGroup{Metadata: named("run")}
	run.Spec = drover.DeploymentIntentGroupSpec{CompositeProfile: "profile", Version: name, LogicalCloud: "all"}
	must(api.DeploymentIntentGroupCreateWithResponse(ctx, "shop", name, "v1", nil, run))
	placement := drover.GenericPlacementIntent{Metadata: named("placement")}
	must(api.GenericPlacementIntentCreateWithResponse(ctx, "shop", name, "v1", "run", nil, placement))
	var anyOf []drover.Element
	for _, cluster := range clusters {
		if slices.Contains(where, cluster.name) {
			anyOf = append(anyOf, drover.Element{ClusterProvider: &cluster.provider, Cluster: &cluster.name})
		}
	}
	intent := drover.AppIntent{Metadata: named(name), Spec: drover.AppIntentSpec{App: name, Intent: &drover.Intent{AnyOf: &anyOf}}}
	must(api.AppIntentCreateWithResponse(ctx, "shop", name, "v1", "run", "placement", nil, intent))
	used := drover.GroupIntent{Metadata: named("used")}
	used.Spec.Intent = map[string]string{"genericPlacementIntent": "placement"}
	must(api.GroupIntentCreateWithResponse(ctx, "shop", name, "v1", "run", nil, used))
	must(api.MigrationIntentCreateWithResponse(ctx, "shop", name, "v1", "run", nil, drover.MigrationIntent{Metadata: named("migration")}))
	mayMove := drover.MigrationAppIntent{Metadata: named(name), Spec: drover.MigrationAppIntentSpec{App: name, Migration: movable}}
	must(api.MigrationAppIntentCreateWithResponse(ctx, "shop", name, "v1", "run", "migration", nil, mayMove))
	must(api.ApproveWithResponse(ctx, "shop", name, "v1", "run", nil))
	return s.finished(must(api.InstantiateWithResponse(ctx, "shop", name, "v1", "run", nil, drover.VerbBody{})).JSON202)
}

func TestStory(t *testing.T) {
	url := os.Getenv("DROVER_URL")
	if url == "" {
		url = "http://127.0.0.1:7070"
	}
	api, err := drover.NewClientWithResponses(url, drover.WithRequestEditorFn(drover.BearerToken(os.Getenv("DROVER_TOKEN"))))
	if err != nil {
		t.Fatal(err)
	}
	s := story{context.Background(), api}
	s.register()
	must(api.ProjectCreateWithResponse(s.ctx, nil, drover.Project{Metadata: named("shop")}))
	level := "0"
	cloud := drover.LogicalCloud{Metadata: named("all"), Spec: drover.LogicalCloudSpec{Level: &level}}
	must(api.LogicalCloudCreateWithResponse(s.ctx, "shop", nil, cloud))
	for _, cluster := range clusters {
		reference := drover.ClusterReference{Metadata: named(cluster.name)}
		reference.Spec = drover.ClusterReferenceSpec{ClusterProvider: cluster.provider, Cluster: cluster.name}
		must(api.ClusterReferenceCreateWithResponse(s.ctx, "shop", "all", nil, reference))
	}
	must(api.LogicalCloudInstantiateWithResponse(s.ctx, "shop", "all", nil))

	s.deploy("cart", []string{"private-a", "private-b", "public-c"}, true)
	moves := s.deploy("ledger", []string{"private-a"}, false)
	t.Log("the newcomer made room:", moves)
	if !slices.Equal(moves, []string{"cart/cart to onprem+private-b"}) {
		t.Fatal(moves)
	}

	var wish drover.PlanWish
	if err := wish.FromPlanWish1(drover.PlanWish1{Kind: "drain", ClusterProvider: "onprem", Cluster: "private-b"}); err != nil {
		t.Fatal(err)
	}
	plan := must(api.PlanCreateWithResponse(s.ctx, nil, wish)).JSON201
	moves = s.finished(must(api.PlanApplyWithResponse(s.ctx, plan.Id, nil)).JSON202)
	t.Log("private-b is drained:", moves)
	if !slices.Equal(moves, []string{"cart/cart to aws+public-c"}) {
		t.Fatal(moves)
	}

	for _, name := range []string{"cart", "ledger"} {
		s.finished(must(api.TerminateWithResponse(s.ctx, "shop", name, "v1", "run", nil)).JSON202)
	}
}
