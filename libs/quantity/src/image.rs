//! Full names of images, so that the short name in a manifest and the full name that a node reports compare as equal.

/// The full name of an image, as containerd reports it: registry, repository, tag or digest (where both are given, the digest).
/// The rules are those of github.com/distribution/reference, `ParseDockerRef`.
///
/// ```
/// # use drover_quantity::image_name;
/// assert_eq!(image_name("nginx"), "docker.io/library/nginx:latest");
/// assert_eq!(image_name("ghcr.io/a/b:2@sha256:0f"), "ghcr.io/a/b@sha256:0f");
/// ```
pub fn image_name(name: &str) -> String {
    let (name, digest) = name.split_once('@').map_or((name, None), |(name, digest)| (name, Some(digest)));
    let is_registry = |first: &str| first.contains(['.', ':']) || first == "localhost" || first.chars().any(char::is_uppercase);
    let (registry, path) = name.split_once('/').filter(|(first, _)| is_registry(first)).unwrap_or(("docker.io", name));
    let registry = if registry == "index.docker.io" { "docker.io" } else { registry };
    let (path, tag) = path.rsplit_once(':').unwrap_or((path, "latest"));
    let library = if registry == "docker.io" && !path.contains('/') { "library/" } else { "" };
    match digest {
        Some(digest) => format!("{registry}/{library}{path}@{digest}"),
        None => format!("{registry}/{library}{path}:{tag}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_name_completes_short_names_as_nodes_report_them() {
        let cases = [
            ("nginx:1", "docker.io/library/nginx:1"),
            ("bitnami/nginx", "docker.io/bitnami/nginx:latest"),
            ("docker.io/nginx", "docker.io/library/nginx:latest"),
            ("index.docker.io/library/nginx:1", "docker.io/library/nginx:1"),
            ("registry:5000/web", "registry:5000/web:latest"),
            ("localhost/web:dev", "localhost/web:dev"),
            ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
            ("nginx@sha256:0f", "docker.io/library/nginx@sha256:0f"),
            ("nginx:1@sha256:0f", "docker.io/library/nginx@sha256:0f"),
        ];
        for (short, full) in cases {
            assert_eq!(image_name(short), full);
            assert_eq!(image_name(full), full, "again");
        }
    }
}
