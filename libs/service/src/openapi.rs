//! Completes a service's OpenAPI document in the way common to all services.
//!
//! Handlers describe their own operations. Here every operation gets the problem as its default answer, path parameters become
//! required, and operation ids are checked to be unique.

use std::collections::BTreeSet;

use axum::Router;
use utoipa::openapi::path::{Operation, ParameterIn, PathItem};
use utoipa::openapi::{ContentBuilder, InfoBuilder, OpenApi, Ref, RefOr, Required, ResponseBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;

use crate::ProblemDocument;

/// The OpenAPI document of a service, as `/openapi.json` answers it and as it is checked in at openapi/<service>.json.
pub fn document<S: Clone + Send + Sync + 'static>(service: &str, routes: OpenApiRouter<S>) -> OpenApi {
    finish(service, routes).1
}

pub(crate) fn finish<S: Clone + Send + Sync + 'static>(service: &str, routes: OpenApiRouter<S>) -> (Router<S>, OpenApi) {
    let (router, mut document) = routes.split_for_parts();
    // By default the title and version are those of the crate that made the router.
    document.info = InfoBuilder::new().title(format!("drover {service}")).version("v2").build();
    document.servers = None;

    let components = document.components.get_or_insert_default();
    components.schemas.insert(ProblemDocument::name().into_owned(), ProblemDocument::schema());

    let mut ids = BTreeSet::new();
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            let id = operation.operation_id.clone().unwrap_or_default();
            assert!(ids.insert(id.clone()), "operation id {id:?} is used twice, again at {path}");
            operation.responses.responses.entry("default".to_owned()).or_insert_with(problem);
            for response in operation.responses.responses.values_mut() {
                if let RefOr::T(response) = response
                    && response.description.is_empty()
                {
                    response.description = "As described by its schema".to_owned();
                }
            }
            if let Some(RefOr::T(body)) = &mut operation.request_body {
                for content in body.content.values_mut() {
                    if let RefOr::T(content) = content {
                        without_null(&mut content.schema);
                    }
                }
            }
            for parameter in operation.parameters.iter_mut().flatten() {
                if let RefOr::T(parameter) = parameter
                    && matches!(parameter.parameter_in, ParameterIn::Path)
                {
                    parameter.required = Required::True;
                }
            }
        }
    }
    (router, document)
}

/// An optional body is left out; utoipa says that it may be null too, and then generated clients send null, or fail.
fn without_null(schema: &mut Option<RefOr<Schema>>) {
    let Some(RefOr::T(Schema::OneOf(either))) = schema else { return };
    let null = |item: &RefOr<Schema>| matches!(item, RefOr::T(Schema::Object(object)) if object.schema_type == Type::Null.into());
    either.items.retain(|item| !null(item));
    if either.items.len() == 1 {
        *schema = either.items.pop();
    }
}

fn problem() -> RefOr<utoipa::openapi::Response> {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(ProblemDocument::name()))).build();
    ResponseBuilder::new().description("What went wrong").content("application/problem+json", content).build().into()
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch, &mut item.head, &mut item.options, &mut item.trace]
        .into_iter()
        .flatten()
}
