//! rustls alone over a plain connection, as its users have it, with the suite and the kind of key
//! that members have: what stands beside Terral where it encrypts.
//!
//! Nothing here is secret: the key is in this file, and what goes over the connection is worthless.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, ServerConfig, ServerConnection,
    SignatureScheme, StreamOwned,
};

/// What comes before the 32 bytes of an Ed25519 key in PKCS #8 (RFC 8410).
const ED25519: [u8; 16] = [48, 46, 2, 1, 0, 48, 5, 6, 3, 43, 101, 112, 4, 34, 4, 32];

/// A connection, encrypted or not.
pub trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// Takes whatever it is told.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256],
        ..ring::default_provider()
    })
}

/// The side that has dialled.
///
/// # Errors
/// None, with what is in this file.
pub fn dialled(stream: TcpStream) -> Result<Box<dyn Stream>> {
    let client = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    let name = ServerName::try_from("terral").context("a name")?;
    Ok(Box::new(StreamOwned::new(ClientConnection::new(Arc::new(client), name)?, stream)))
}

/// The side that was dialled.
///
/// # Errors
/// None, with what is in this file.
pub fn accepted(stream: TcpStream) -> Result<Box<dyn Stream>> {
    let provider = provider();
    let key = PrivatePkcs8KeyDer::from([&ED25519[..], &[9; 32]].concat());
    let key = provider.key_provider.load_private_key(PrivateKeyDer::Pkcs8(key))?;
    let public = key.public_key().context("a key's public half")?.to_vec();
    let key = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key));
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    Ok(Box::new(StreamOwned::new(ServerConnection::new(Arc::new(server))?, stream)))
}

#[cfg(test)]
mod tests {
    use crate::bench_link::{accept, dial, listen, receive, send};

    use super::{accepted, dialled};

    #[test]
    fn what_is_sent_comes() {
        let listener = listen().expect("listens");
        let port = listener.local_addr().expect("an address").port();
        let far = std::thread::spawn(move || {
            let mut stream = accepted(accept(&listener).expect("comes")).expect("a key");
            send(&mut stream, &[7; 1 << 20], 3 << 20).expect("sends");
        });
        let stream = dial(&[([127, 0, 0, 1], port).into()]).expect("dials");
        let mut buffer = vec![0; 1 << 20];
        receive(&mut dialled(stream).expect("no key"), &mut buffer, 3 << 20).expect("receives");
        assert!(buffer.iter().all(|byte| *byte == 7));
        far.join().expect("ends");
    }
}
