//! `--scale-to-zero`: sets the annotation by which the services add what a Deployment needs for it.

use anyhow::{Result, bail};
use drover_autoscaling::to_zero::SCALE_TO_ZERO as ANNOTATION;
use serde_json::{Value, json};

use crate::input::Input;

/// Annotates the Deployments whose pods a Service selects.
///
/// # Errors
/// There is none, or the input is a chart.
pub fn annotate(input: &mut Input, settings: &str) -> Result<()> {
    let Input::Manifests(manifests) = input else {
        bail!("--scale-to-zero changes manifests; in a chart set the annotation {ANNOTATION}: \"{settings}\" of its Deployment");
    };
    let selectors: Vec<Value> = manifests
        .iter()
        .filter(|manifest| manifest.value["kind"] == "Service")
        .map(|manifest| manifest.value["spec"]["selector"].clone())
        .collect();
    let mut found = 0;
    for manifest in manifests.iter_mut().filter(|manifest| manifest.value["kind"] == "Deployment") {
        let labels = &manifest.value["spec"]["template"]["metadata"]["labels"];
        let selected = |selector: &Value| {
            selector.as_object().is_some_and(|wanted| !wanted.is_empty() && wanted.iter().all(|(name, value)| labels[name] == *value))
        };
        if selectors.iter().any(selected) {
            manifest.value["metadata"]["annotations"][ANNOTATION] = json!(settings);
            found += 1;
        }
    }
    if found == 0 {
        bail!("--scale-to-zero: no Deployment here has a Service that selects its pods, and nothing else could wake it");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use drover_manifest::objects;

    use super::*;

    #[test]
    fn deployments_with_a_service_are_annotated() {
        let text = "{kind: Deployment, apiVersion: apps/v1, metadata: {name: a}, spec: {template: {metadata: {labels: {app: a}}}}}\n---\n\
            {kind: Deployment, apiVersion: apps/v1, metadata: {name: b}, spec: {template: {metadata: {labels: {app: b}}}}}\n---\n\
            {kind: Service, apiVersion: v1, metadata: {name: a}, spec: {selector: {app: a}}}\n";
        let mut input = Input::Manifests(objects::read("text", text).unwrap());
        annotate(&mut input, "max=3").unwrap();
        let Input::Manifests(manifests) = &input else { panic!("still manifests") };
        let annotations: Vec<&Value> = manifests.iter().map(|manifest| &manifest.value["metadata"]["annotations"][ANNOTATION]).collect();
        assert_eq!(annotations, [&json!("max=3"), &Value::Null, &Value::Null]);
        let mut alone = Input::Manifests(objects::read("text", text.split("---").nth(1).unwrap()).unwrap());
        assert!(annotate(&mut alone, "true").unwrap_err().to_string().contains("no Deployment here"));
        assert!(annotate(&mut Input::Archive(vec![]), "true").unwrap_err().to_string().contains("annotation"));
    }
}
