//! `drover image push`: brings the image of an archive into a registry, without a container engine.
//!
//! The archive is one that `docker save`, `podman save` or deploy/local-kube/images/mkimage.py writes. Layers are read from the file while
//! they are sent, and a layer that the registry has is not sent again. Talks to the registry and to nothing else.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use docker_credential::{CredentialRetrievalError, DockerCredential};
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::manifest::{
    IMAGE_CONFIG_MEDIA_TYPE, IMAGE_LAYER_GZIP_MEDIA_TYPE, IMAGE_LAYER_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageManifest,
    OciManifest,
};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;

use crate::globals::Format;
use crate::output;

/// `drover image …`.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Push an image from an archive to a registry, for clusters whose nodes pull from there.
    Push(PushArgs),
}

/// `drover image push`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover image push drover.tar registry.example/tools/drover:0.1.0
  drover agents set autoscaler --on all --image registry.example/tools/drover --version 0.1.0 --wait
  drover image push drover.tar 10.0.0.5:5000/drover:0.1.0 --plain-http

The archive is one that `docker save`, `podman save` or deploy/local-kube/images/mkimage.py writes. Credentials are those of `docker login`.")]
pub struct PushArgs {
    /// Archive of one image.
    #[arg(value_name = "ARCHIVE")]
    archive: PathBuf,
    /// Where it goes, with a tag.
    #[arg(value_name = "REGISTRY/NAME:TAG")]
    image: String,
    /// Talk to the registry without TLS.
    #[arg(long)]
    plain_http: bool,
    /// Believe also certificates of the authority in this PEM file.
    #[arg(long, value_name = "FILE", conflicts_with = "plain_http")]
    registry_ca: Option<PathBuf>,
}

/// What was pushed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pushed {
    image: String,
    digest: String,
    layers: Vec<PushedLayer>,
}

#[derive(Debug, Serialize)]
struct PushedLayer {
    digest: String,
    size: u64,
    /// Whether it was sent; the registry had it otherwise.
    sent: bool,
}

/// Pushes the image and prints its name.
///
/// # Errors
/// The archive cannot be read, or the registry cannot be reached or refuses.
pub async fn run(command: ImageCommand, format: Format) -> Result<()> {
    let ImageCommand::Push(args) = command;
    let pushed = push(&args).await.map_err(|error| match unauthorized(&error) {
        true => error.context("the registry does not let you push there: sign in with `docker login REGISTRY`, whose credentials are used"),
        false => error,
    })?;
    output::print(format, &pushed, |_| {
        let sent = pushed.layers.iter().filter(|layer| layer.sent).count();
        let row = vec![pushed.image.clone(), pushed.digest.clone(), format!("{sent} of {}", pushed.layers.len())];
        (vec!["IMAGE", "DIGEST", "LAYERS SENT"], vec![row])
    })
}

async fn push(args: &PushArgs) -> Result<Pushed> {
    let image: Reference = args.image.parse().with_context(|| format!("{:?} is not the name of an image", args.image))?;
    ensure!(named_with_tag(&args.image), "{:?} has no tag; give REGISTRY/NAME:TAG", args.image);
    let archive = Archive::read(&args.archive).with_context(|| format!("{} cannot be used", args.archive.display()))?;
    let registry = image.resolve_registry();
    let client = client(args)?;
    let refused = |what: &str| format!("{what} at {registry}");
    client.auth(&image, &credentials(registry)?, RegistryOperation::Push).await.with_context(|| refused("cannot sign in"))?;
    let mut layers = Vec::with_capacity(archive.layers.len());
    for layer in &archive.layers {
        let sent = !client.blob_exists(&image, &layer.digest).await.with_context(|| refused("the layers cannot be looked up"))?;
        if sent {
            let mut file = tokio::fs::File::open(&args.archive).await?;
            file.seek(SeekFrom::Start(layer.at)).await?;
            let bytes = ReaderStream::with_capacity(file.take(layer.size), 1 << 20);
            let bytes = futures::StreamExt::map(bytes, |read| read.map_err(Into::into));
            let pushed = client.push_blob_stream(&image, bytes, &layer.digest, Some(layer.size)).await;
            pushed.with_context(|| refused(&format!("the layer {} was not taken", layer.digest)))?;
        }
        layers.push(PushedLayer { digest: layer.digest.clone(), size: layer.size, sent });
    }
    let config = digest(&archive.config);
    client.push_blob(&image, archive.config.clone(), &config).await.with_context(|| refused("the configuration was not taken"))?;
    let manifest = OciManifest::Image(archive.manifest(config)?);
    client.push_manifest(&image, &manifest).await.with_context(|| refused("the manifest was not taken"))?;
    let digest = client.fetch_manifest_digest(&image, &credentials(registry)?).await.with_context(|| refused("the image is not there"))?;
    Ok(Pushed { image: args.image.clone(), digest, layers })
}

/// Whether the registry wants other credentials, or some.
fn unauthorized(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref::<OciDistributionError>()).any(|error| match error {
        OciDistributionError::UnauthorizedError { .. } | OciDistributionError::AuthenticationFailure(_) => true,
        OciDistributionError::RequestError(error) => error.status().is_some_and(|status| [401, 403].contains(&status.as_u16())),
        OciDistributionError::ServerError { code, .. } => [401, 403].contains(code),
        _ => false,
    })
}

/// Whether a name ends in a tag; the colon of a port is not one.
fn named_with_tag(image: &str) -> bool {
    image.rsplit('/').next().is_some_and(|last| last.contains(':'))
}

fn client(args: &PushArgs) -> Result<Client> {
    let mut extra_root_certificates = Vec::new();
    if let Some(file) = &args.registry_ca {
        let data = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        extra_root_certificates.push(Certificate { encoding: CertificateEncoding::Pem, data });
    }
    let protocol = if args.plain_http { ClientProtocol::Http } else { ClientProtocol::Https };
    Ok(Client::try_from(ClientConfig { protocol, extra_root_certificates, ..ClientConfig::default() })?)
}

/// Those that `docker login` has stored for a registry; none: the registry is asked anonymously.
fn credentials(registry: &str) -> Result<RegistryAuth> {
    match docker_credential::get_credential(registry) {
        Ok(DockerCredential::UsernamePassword(user, password)) => Ok(RegistryAuth::Basic(user, password)),
        Ok(DockerCredential::IdentityToken(_)) => {
            bail!(
                "the credentials for {registry} are an identity token, which is not understood; use `docker login` with a password or an access token"
            )
        }
        Err(CredentialRetrievalError::ConfigNotFound | CredentialRetrievalError::NoCredentialConfigured) => Ok(RegistryAuth::Anonymous),
        // So it says of a file that is not there, too.
        Err(CredentialRetrievalError::ConfigReadError) if !stored().is_some_and(|file| file.exists()) => Ok(RegistryAuth::Anonymous),
        Err(error) => Err(error).with_context(|| format!("the credentials for {registry} cannot be read")),
    }
}

/// The file in which `docker login` stores credentials.
fn stored() -> Option<PathBuf> {
    let folder = std::env::var_os("DOCKER_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
    let folder = folder.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker")))?;
    Some(folder.join("config.json"))
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

/// A layer in an archive.
#[derive(Debug, PartialEq, Eq)]
struct Layer {
    digest: String,
    /// Where it begins in the archive, and its length.
    at: u64,
    size: u64,
    compressed: bool,
}

/// An image in an archive.
#[derive(Debug)]
struct Archive {
    config: Vec<u8>,
    layers: Vec<Layer>,
}

/// An entry of manifest.json.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    config: String,
    layers: Vec<String>,
}

impl Archive {
    fn read(path: &Path) -> Result<Self> {
        let mut file = std::fs::File::open(path)?;
        let (mut places, mut links) = (BTreeMap::new(), BTreeMap::new());
        for entry in tar::Archive::new(&file).entries_with_seek()? {
            let entry = entry.context("it is not a tar file")?;
            let name = entry.path()?.to_string_lossy().trim_start_matches("./").to_owned();
            if let Some(target) = entry.link_name()?.filter(|_| entry.header().entry_type() != tar::EntryType::Regular) {
                // Older archives store a layer once and link to it, from the link's own folder.
                let target = target.to_string_lossy().trim_start_matches("../").to_owned();
                links.insert(name, target);
            } else {
                places.insert(name, (entry.raw_file_position(), entry.size()));
            }
        }
        let place = |name: &str| {
            let found = places.get(name).or_else(|| places.get(links.get(name)?));
            found.copied().with_context(|| format!("{name} is not in it"))
        };
        let mut content = |name: &str| -> Result<Vec<u8>> {
            let (at, size) = place(name)?;
            let mut bytes = vec![0; usize::try_from(size)?];
            file.seek(SeekFrom::Start(at))?;
            file.read_exact(&mut bytes)?;
            Ok(bytes)
        };
        let list = content("manifest.json").context("it is not an archive of `docker save`")?;
        let list: Vec<Listed> = serde_json::from_slice(&list).context("its manifest.json cannot be read")?;
        let [listed] = list.as_slice() else { bail!("it has {} images; save one alone", list.len()) };
        let config = content(&listed.config)?;
        let mut layers = Vec::with_capacity(listed.layers.len());
        for name in &listed.layers {
            let (at, size) = place(name)?;
            layers.push(Layer::read(&mut file, at, size)?);
        }
        Ok(Self { config, layers })
    }

    fn manifest(&self, config: String) -> Result<OciImageManifest> {
        let describe = |media_type: &str, digest: String, size: u64| {
            Ok::<_, anyhow::Error>(OciDescriptor {
                media_type: media_type.to_owned(),
                digest,
                size: i64::try_from(size)?,
                ..OciDescriptor::default()
            })
        };
        let kind = |layer: &Layer| if layer.compressed { IMAGE_LAYER_GZIP_MEDIA_TYPE } else { IMAGE_LAYER_MEDIA_TYPE };
        let layers = self.layers.iter().map(|layer| describe(kind(layer), layer.digest.clone(), layer.size)).collect::<Result<_>>()?;
        Ok(OciImageManifest {
            schema_version: 2,
            media_type: Some(OCI_IMAGE_MEDIA_TYPE.to_owned()),
            config: describe(IMAGE_CONFIG_MEDIA_TYPE, config, self.config.len() as u64)?,
            layers,
            ..OciImageManifest::default()
        })
    }
}

impl Layer {
    fn read(file: &mut std::fs::File, at: u64, size: u64) -> Result<Self> {
        file.seek(SeekFrom::Start(at))?;
        let (mut hash, mut first) = (Sha256::new(), [0_u8; 2]);
        let (mut left, mut buffer) = (size, vec![0; 1 << 20]);
        while left > 0 {
            let wanted = usize::try_from(left.min(buffer.len() as u64))?;
            file.read_exact(&mut buffer[..wanted])?;
            if left == size && wanted >= 2 {
                first.copy_from_slice(&buffer[..2]);
            }
            hash.update(&buffer[..wanted]);
            left -= wanted as u64;
        }
        Ok(Self { digest: format!("sha256:{:x}", hash.finalize()), at, size, compressed: first == [0x1f, 0x8b] })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Writes an archive with these files.
    fn archive(files: &[(&str, &[u8])]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut builder = tar::Builder::new(Vec::new());
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, *bytes).unwrap();
        }
        file.write_all(&builder.into_inner().unwrap()).unwrap();
        file
    }

    #[test]
    fn layers_are_found_with_their_digests_and_forms() {
        let list = br#"[{"Config": "c.json", "RepoTags": ["a:1"], "Layers": ["one/layer.tar", "two"]}]"#;
        let (plain, packed) = (vec![7_u8; 3 << 20], b"\x1f\x8b rest");
        let file = archive(&[("manifest.json", list), ("c.json", b"{}"), ("one/layer.tar", &plain), ("two", packed)]);
        let found = Archive::read(file.path()).unwrap();
        assert_eq!(found.config, b"{}");
        let kinds: Vec<_> = found.layers.iter().map(|layer| (layer.digest.clone(), layer.size, layer.compressed)).collect();
        assert_eq!(kinds, [(digest(&plain), 3 << 20, false), (digest(packed), 7, true)]);
        let manifest = found.manifest("sha256:c".to_owned()).unwrap();
        assert_eq!(manifest.layers[1].media_type, IMAGE_LAYER_GZIP_MEDIA_TYPE);
    }

    #[test]
    fn what_is_no_archive_of_one_image_is_named() {
        let wrong = |files: &[(&str, &[u8])]| format!("{:#}", Archive::read(archive(files).path()).unwrap_err());
        assert!(wrong(&[("other", b"")]).contains("docker save"));
        assert!(wrong(&[("manifest.json", b"[]")]).contains("0 images"));
        let missing = br#"[{"Config": "c.json", "Layers": ["gone"]}]"#;
        assert!(wrong(&[("manifest.json", missing), ("c.json", b"{}")]).contains("gone is not in it"));
        assert!(named_with_tag("localhost:5000/a:1") && !named_with_tag("localhost:5000/a"));
    }
}
