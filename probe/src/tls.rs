//! TLS by rustls: which certificates are trusted, and what a failed handshake says.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use crate::fault::{Fault, FaultKind};

/// The certificates that are trusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Trust {
    /// Those of the system's authorities.
    #[default]
    System,
    /// Those of the authorities in a PEM file, and of the system's.
    File(PathBuf),
    /// Any.
    Anything,
}

/// Makes the configuration.
///
/// # Errors
/// A file that cannot be read or has no certificate.
pub(crate) fn config(trust: &Trust) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let config = match trust {
        Trust::Anything => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptsAll(provider))).with_no_client_auth()
        }
        Trust::System => builder.with_root_certificates(system_roots()).with_no_client_auth(),
        Trust::File(path) => {
            let mut roots = system_roots();
            add_file(&mut roots, path)?;
            builder.with_root_certificates(roots).with_no_client_auth()
        }
    };
    Ok(Arc::new(config))
}

/// The system's authorities. Without any, every certificate is of an unknown issuer, and the request says so.
fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Most bytes of a file of authorities.
const MAX_FILE_BYTES: u64 = 16 << 20;

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let fault = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut pem = Vec::new();
    let file = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut pem));
    if file.map_err(|error| fault(&error))? as u64 > MAX_FILE_BYTES {
        return Err(fault(&"has more than 16 MiB: is it the right file?"));
    }
    let certificates: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|error| fault(&error))?;
    if certificates.is_empty() {
        return Err(fault(&"has no certificate: it must be PEM, with -----BEGIN CERTIFICATE-----"));
    }
    certificates.into_iter().try_for_each(|certificate| roots.add(certificate)).map_err(|error| fault(&error))
}

/// The fault of a failed handshake.
pub(crate) fn handshake_fault(error: &io::Error) -> Fault {
    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let kind = match of_tls {
        Some(Error::InvalidCertificate(certificate)) => match certificate {
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => FaultKind::TlsExpired,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                FaultKind::TlsWrongName
            }
            CertificateError::UnknownIssuer => FaultKind::TlsUnknownIssuer,
            CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
                FaultKind::TlsAuthority
            }
            _ => FaultKind::TlsFailed,
        },
        Some(Error::InvalidMessage(_)) => FaultKind::NotTls,
        Some(_) => FaultKind::TlsFailed,
        None if error.kind() == io::ErrorKind::ConnectionReset => FaultKind::ConnectionReset,
        None => FaultKind::TlsFailed,
    };
    Fault::new(kind, error)
}

/// Takes any certificate, because the user said so; signatures of the handshake are checked all the same.
#[derive(Debug)]
struct AcceptsAll(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptsAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
