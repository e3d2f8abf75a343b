use serde_json::json;

use super::*;

fn rendered(template: &str) -> String {
    let values = json!({
        "ProjectName": "proj1",
        "Clusters": [{"Name": "edge1", "Port": 6443}, {"Name": "edge2", "Apps": ["a", "b"]}],
        "Map": {"b": 2, "a": 1},
        "Empty": [],
        "On": true,
    });
    render(template, &values).unwrap_or_else(|error| panic!("{template}: {error}"))
}

#[test]
fn fields_loops_and_conditions_give_what_go_gives() {
    for (template, wanted) in [
        ("no action", "no action"),
        ("projects/{{ .ProjectName }}/x", "projects/proj1/x"),
        ("{{range .Clusters}}{{.Name}} of {{$.ProjectName}};{{end}}", "edge1 of proj1;edge2 of proj1;"),
        (
            "a\n{{- range $index, $cluster := .Clusters }}\n{{ $index }}={{ $cluster.Name }}{{ range $cluster.Apps }}+{{ . }}{{ end }}\n{{- end }}\nz",
            "a\n0=edge1\n1=edge2+a+b\nz",
        ),
        ("{{range $key, $value := .Map}}{{$key}}{{$value}}{{end}}", "a1b2"),
        ("{{range .Empty}}x{{else}}none{{end}}{{range .Missing}}x{{end}}", "none"),
        ("{{if .Missing}}a{{else if eq .ProjectName \"x\" \"proj1\"}}b{{else}}c{{end}}", "b"),
        ("{{if and .On (not .Missing) (gt (len .Clusters) 1)}}yes{{end}}", "yes"),
        ("{{with (index .Clusters 1)}}{{.Name}}{{end}}{{with .Missing}}x{{else}}{{.ProjectName}}{{end}}", "edge2proj1"),
        ("{{ $x := printf \"%s-%d\" .ProjectName 7 }}{{ $x }}{{/* {{ a comment }} */}}", "proj1-7"),
        ("{{ .ProjectName | printf \"%q\" }} {{`{{raw}}`}} {{\"}}\"}}", "\"proj1\" {{raw}} }}"),
        ("{{ $seen := false }}{{ range .Clusters }}{{ $seen := true }}{{ end }}{{ $seen }}", "false"),
        ("{{ $last := 0 }}{{ range $at, $one := .Clusters }}{{ $last = $at }}{{ end }}{{ $last }}", "1"),
        ("x  {{- /* trims both sides */ -}}  y", "xy"),
    ] {
        assert_eq!(rendered(template), wanted, "{template}");
    }
}

#[test]
fn errors_name_the_line_and_the_cause() {
    for (template, line, reason) in [
        ("a\nb {{ .Nowhere.Name }}", 2, "the values have no .Nowhere.Name"),
        ("{{ if .On }}", 1, "if has no end"),
        ("\n\n{{ range .A }}x", 3, "range has no end"),
        ("{{ end }}", 1, "end or else without"),
        ("{{ .A", 1, "not closed with }}"),
        ("{{ toYaml . }}", 1, "function toYaml is not supported"),
        ("{{ template \"x\" }}", 1, "template is not supported"),
        ("{{ range .On }}{{ end }}", 1, "range needs a list or a map"),
        ("{{ $x }}", 1, "no variable $x"),
        ("{{ printf \"%s\" }}", 1, "too few arguments"),
        ("{{ (.On }}", 1, "parentheses"),
    ] {
        let error = render(template, &json!({"On": true})).unwrap_err();
        assert!(error.line == line && error.reason.contains(reason), "{template}: {error}");
    }
}
