//! The names of Services answer where an app has been and where others of its project are, on kubesim.

use drover_api::bindings::{DesiredBinding, DesiredState, Phase};
use drover_kubesim::Operation;
use drover_members::labels;
use drover_scheduling::{MemberKey, MemberState};
use drover_store::failpoint::Action;
use drover_testkit::eventually;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use uuid::Uuid;

use crate::support::{MEMBER, PATIENCE, Stack, binding, config, deployment, service};

const OTHER: &str = "onprem+b";
const THIRD: &str = "onprem+c";
const APART: &str = "onprem+d";

/// An app `cart` on [`MEMBER`] with a Service, and a caller on [`OTHER`].
struct Shop {
    stack: Stack,
    fence: i64,
}

impl Shop {
    async fn start() -> (Self, DesiredBinding) {
        let stack = Stack::without_members().await;
        stack.add_member(APART);
        stack.labels.lock().unwrap().push("pod-network=flat".into());
        for member in [MEMBER, OTHER, THIRD] {
            stack.add_member(member);
        }
        stack.bundle("cart", vec![deployment("cart", 2, "100m"), service("cart")]).await;
        stack.bundle("caller", vec![config("caller", "http://cart")]).await;
        let caller = DesiredBinding { member: MemberKey(OTHER.into()), ..binding("caller", "caller") };
        let apart = DesiredBinding { member: MemberKey(APART.into()), ..binding("apart", "caller") };
        for desired in [&caller, &apart] {
            stack.desire(desired).await;
            stack.reaches(desired, Phase::Ready).await;
        }
        let mut shop = Self { stack, fence: 1 };
        let cart = shop.comes(MEMBER).await;
        (shop, cart)
    }

    /// A copy comes to a member.
    async fn comes(&mut self, member: &str) -> DesiredBinding {
        self.fence += 1;
        let member = MemberKey(member.into());
        let cart = DesiredBinding { id: Uuid::new_v4(), member, names: true, fence: self.fence, ..binding("cart", "cart") };
        self.stack.desire(&cart).await;
        self.stack.reaches(&cart, Phase::Ready).await;
        cart
    }

    /// A copy goes.
    async fn goes(&mut self, copy: &DesiredBinding) {
        let gone = self.is_to_go(copy).await;
        self.stack.reaches(&gone, Phase::Gone).await;
    }

    async fn is_to_go(&mut self, copy: &DesiredBinding) -> DesiredBinding {
        self.fence += 1;
        let gone = DesiredBinding { state: DesiredState::Absent, fence: self.fence, ..copy.clone() };
        self.stack.desire(&gone).await;
        gone
    }

    fn api<K>(&self, member: &str) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.stack.sim.client(member), "default")
    }

    /// The Service in a member: its uid and the binding whose it is.
    async fn service(&self, member: &str) -> Option<(String, Uuid)> {
        let found = self.api::<Service>(member).get_opt("cart").await.unwrap()?;
        Some((found.uid().unwrap(), labels::binding(&found.metadata).unwrap()))
    }

    /// The addresses to which the name leads in a member: of all ready endpoints, sorted.
    async fn leads_to(&self, member: &str) -> Vec<String> {
        let of_service = ListParams::default().labels("kubernetes.io/service-name=cart");
        let slices = self.api::<EndpointSlice>(member).list(&of_service).await.unwrap();
        let endpoints = slices.into_iter().flat_map(|slice| slice.endpoints);
        let ready = endpoints.filter(|endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false));
        let mut found: Vec<String> = ready.flat_map(|endpoint| endpoint.addresses).collect();
        found.sort();
        found
    }

    /// The names of single pods in a member, with their addresses, sorted.
    async fn named(&self, member: &str) -> Vec<(String, String)> {
        let of_service = ListParams::default().labels("kubernetes.io/service-name=cart");
        let slices = self.api::<EndpointSlice>(member).list(&of_service).await.unwrap();
        let endpoints = slices.into_iter().flat_map(|slice| slice.endpoints);
        let mut found: Vec<(String, String)> =
            endpoints.filter_map(|endpoint| Some((endpoint.hostname?, endpoint.addresses.first()?.clone()))).collect();
        found.sort();
        found
    }

    /// The addresses of the app's pods in a member.
    async fn pods(&self, member: &str) -> Vec<String> {
        let pods = self.api::<k8s_openapi::api::core::v1::Pod>(member).list(&ListParams::default().labels("app=cart")).await.unwrap();
        let mut found: Vec<String> = pods.into_iter().filter_map(|pod| pod.status?.pod_ip).collect();
        found.sort();
        found
    }

    /// Waits until the name leads to the pods in `runs`, and only to those, in these members.
    async fn answers(&self, members: &[&str], runs: &str) {
        for member in members {
            let as_wanted = async || {
                let pods = self.pods(runs).await;
                (pods.len() == 2 && self.leads_to(member).await == pods).then_some(())
            };
            if tokio::time::timeout(PATIENCE, eventually(PATIENCE * 2, as_wanted)).await.is_err() {
                panic!("in {member} the name leads to {:?}, and not to {:?}", self.leads_to(member).await, self.pods(runs).await);
            }
        }
    }

    fn deletions(&self, member: &str, resource: &str) -> usize {
        let effects = self.stack.sim.effects(member);
        effects
            .iter()
            .filter(|effect| effect.operation == Operation::Delete && &*effect.key.resource == resource && &*effect.key.name == "cart")
            .count()
    }

    async fn nothing_is_left(&self) {
        for member in [MEMBER, OTHER, THIRD] {
            let nothing = async || {
                let slices = self.api::<EndpointSlice>(member).list(&ListParams::default()).await.unwrap().items.len();
                (self.service(member).await.is_none() && slices == 0).then_some(())
            };
            eventually(PATIENCE, nothing).await;
        }
    }
}

#[tokio::test]
async fn names_follow_an_app_there_and_back() {
    let (mut shop, first) = Shop::start().await;
    shop.answers(&[MEMBER, OTHER], MEMBER).await;
    let (here, there) = (shop.service(MEMBER).await.unwrap(), shop.service(OTHER).await.unwrap());
    assert_eq!(here.1, first.id);
    assert!(shop.service(THIRD).await.is_none(), "nobody is there");

    let second = shop.comes(OTHER).await;
    shop.answers(&[OTHER], OTHER).await;
    assert_eq!(shop.service(OTHER).await.unwrap(), (there.0.clone(), second.id), "the same Service, taken over by the copy");
    shop.answers(&[MEMBER], MEMBER).await;
    shop.goes(&first).await;
    shop.answers(&[MEMBER, OTHER], OTHER).await;
    assert_eq!(shop.service(MEMBER).await.unwrap().0, here.0, "the same Service, so the same cluster IP");
    assert!(shop.pods(MEMBER).await.is_empty());

    // To a cluster where nobody is, and back to where it began.
    let third = shop.comes(THIRD).await;
    shop.goes(&second).await;
    shop.answers(&[MEMBER, OTHER, THIRD], THIRD).await;
    let last = shop.comes(MEMBER).await;
    shop.goes(&third).await;
    shop.answers(&[MEMBER, OTHER, THIRD], MEMBER).await;
    assert_eq!(shop.service(MEMBER).await.unwrap(), (here.0, last.id));
    assert_eq!([MEMBER, OTHER, THIRD].map(|member| shop.deletions(member, "services")), [0; 3], "the name was there at every moment");
    assert!(shop.service(APART).await.is_none(), "its pods reach nobody");

    shop.goes(&last).await;
    shop.nothing_is_left().await;
}

#[tokio::test]
async fn names_survive_a_kill_at_any_point_of_a_move() {
    for point in
        ["synchronizer/apply/before", "synchronizer/apply/after_effect", "synchronizer/delete/before", "synchronizer/delete/after_effect"]
    {
        let (mut shop, first) = Shop::start().await;
        shop.answers(&[MEMBER, OTHER], MEMBER).await;
        let second = shop.comes(OTHER).await;
        shop.answers(&[OTHER], OTHER).await;
        shop.stack.failpoints.set(point, Action::Pause);
        let gone = shop.is_to_go(&first).await;
        eventually(PATIENCE, async || shop.stack.failpoints.is_paused(point).then_some(())).await;
        shop.stack.kill();
        shop.stack.failpoints.clear(point);
        shop.stack.restart().await;
        shop.stack.reaches(&gone, Phase::Gone).await;
        shop.answers(&[MEMBER, OTHER], OTHER).await;
        assert_eq!(shop.deletions(MEMBER, "services"), 0, "{point}");
        // What was made stays after another start, and nothing is left in the end.
        shop.stack.kill();
        shop.stack.restart().await;
        shop.answers(&[MEMBER, OTHER], OTHER).await;
        shop.goes(&second).await;
        shop.nothing_is_left().await;
    }
}

#[tokio::test]
async fn names_end_where_another_app_brings_one_or_the_pod_network_ends() {
    let (mut shop, first) = Shop::start().await;
    shop.answers(&[OTHER], MEMBER).await;
    let same_name = DesiredBinding { member: MemberKey(OTHER.into()), ..binding("another", "cart") };
    shop.stack.desire(&same_name).await;
    shop.stack.reaches(&same_name, Phase::Ready).await;
    shop.answers(&[OTHER], OTHER).await;
    assert_eq!(shop.service(OTHER).await.unwrap().1, same_name.id);
    let gone = DesiredBinding { state: DesiredState::Absent, fence: 2, ..same_name };
    shop.stack.desire(&gone).await;
    shop.stack.reaches(&gone, Phase::Gone).await;
    shop.answers(&[OTHER], MEMBER).await;

    // The copy goes elsewhere and its own cluster leaves the pod network.
    let second = shop.comes(THIRD).await;
    shop.goes(&first).await;
    shop.answers(&[MEMBER], THIRD).await;
    shop.stack.labels.lock().unwrap().clear();
    shop.stack.tell(MEMBER, MemberState::Ready);
    eventually(PATIENCE, async || shop.service(MEMBER).await.is_none().then_some(())).await;
    shop.goes(&second).await;
    shop.nothing_is_left().await;
}

/// A StatefulSet with these ordinals and its headless Service.
fn set(start: u32, replicas: u32) -> Vec<serde_json::Value> {
    let mut set = deployment("cart", replicas, "100m");
    set["kind"] = "StatefulSet".into();
    (set["spec"]["serviceName"], set["spec"]["ordinals"]) = ("cart".into(), serde_json::json!({"start": start}));
    let mut headless = service("cart");
    headless["spec"]["clusterIP"] = "None".into();
    vec![set, headless]
}

#[tokio::test]
async fn every_pod_of_a_set_on_two_members_has_its_name_once_everywhere() {
    let (mut shop, before) = Shop::start().await;
    shop.goes(&before).await;
    let mut copies = Vec::new();
    for (member, start, replicas) in [(MEMBER, 0, 2), (OTHER, 2, 1)] {
        let bundle = format!("set-{start}");
        shop.stack.bundle(&bundle, set(start, replicas)).await;
        shop.fence += 1;
        let desired = DesiredBinding { digest: bundle.into(), ..binding("cart", "cart") };
        let copy = DesiredBinding { id: Uuid::new_v4(), member: MemberKey(member.into()), names: true, fence: shop.fence, ..desired };
        shop.stack.desire(&copy).await;
        shop.stack.reaches(&copy, Phase::Ready).await;
        copies.push(copy);
    }
    let mut addresses = [shop.pods(MEMBER).await, shop.pods(OTHER).await].concat();
    addresses.sort();
    for member in [MEMBER, OTHER] {
        let all = eventually(PATIENCE, async || Some(shop.named(member).await).filter(|found| found.len() == 3)).await;
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["cart-0", "cart-1", "cart-2"], "{member}");
        let mut found: Vec<String> = all.into_iter().map(|(_, address)| address).collect();
        found.sort();
        assert_eq!(found, addresses, "{member}");
    }
    // The set is whole on one side: nothing leads to the other any more.
    let last = copies.pop().unwrap();
    shop.goes(&last).await;
    for member in [MEMBER, OTHER] {
        eventually(PATIENCE, async || (shop.named(member).await.len() == 2).then_some(())).await;
    }
    shop.goes(&copies[0].clone()).await;
    shop.nothing_is_left().await;
}
