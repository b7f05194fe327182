//! Encryption of a connection: TLS 1.3 (RFC 8446) by a key that is made for the endpoint and that
//! nobody trusts. What TLS knows of the other side is nothing; who it is, the hand-shake of members
//! proves (`shake`), whose proofs are bound to what only the two ends of this encryption know.
//!
//! There is one cipher suite, one group and one kind of key, so that nothing can be talked down.
//! Nothing is resumed, and nothing is said before the hand-shake of TLS is done. Not here: the
//! socket.

use std::io::{BufRead, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{self, CryptoProvider, ring};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, ServerConfig,
    ServerConnection, SignatureScheme,
};
use terral_format::Result;

use super::greeting::MAGIC;
use super::random;

/// Bytes of the value that only the two ends of an encrypted connection know.
pub(super) const EXPORTER_BYTES: usize = 32;
/// Its label (RFC 9266).
const EXPORTER: &[u8] = b"EXPORTER-Channel-Binding";
/// Bytes at most that wait encrypted; what waits beside them is encrypted when it goes.
pub(super) const SEALED_BYTES: usize = 256 << 10;
/// What a side may say, encrypted, before there is a session: several times what members do.
pub(super) const OPENING_BYTES: usize = 4 << 10;
/// What is read of that at once.
pub(super) const OPENING_STEP: usize = 512;
/// What comes before the 32 bytes of an Ed25519 key in PKCS #8 (RFC 8410).
const ED25519: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
/// The first byte of what asks for encryption: a record of a hand-shake.
pub(super) const HELLO: u8 = 22;
/// The first byte of what ends it.
pub(super) const ALERT: u8 = 21;
/// What somebody is told who asks for encryption where there is none: `handshake_failure`.
pub(super) const NO_ENCRYPTION: [u8; 7] = [ALERT, 3, 3, 0, 2, 2, 40];

/// Asked for encryption, and does not encrypt.
pub(super) const WANTS_ENCRYPTION: &str = "it wants encryption, which is off here";
/// The other way round.
pub(super) const WANTS_NONE: &str = "it wants no encryption, which is on here";

/// What an endpoint makes when it starts, for all of its connections.
pub(super) struct Keys {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![ring::kx_group::X25519],
        ..ring::default_provider()
    }
}

/// A key that is new, and its public half as it is sent (RFC 7250).
fn new_key(provider: &CryptoProvider) -> Result<CertifiedKey> {
    let key = PrivatePkcs8KeyDer::from([&ED25519[..], &random::<32>()?].concat());
    let key = provider.key_provider.load_private_key(PrivateKeyDer::Pkcs8(key));
    let key = key.expect("32 bytes are an Ed25519 key");
    let public = key.public_key().expect("a key has a public half").to_vec();
    Ok(CertifiedKey::new(vec![CertificateDer::from(public)], key))
}

impl Keys {
    /// # Errors
    /// The system has no random bytes.
    pub(super) fn make() -> Result<Keys> {
        let provider = Arc::new(provider());
        let key = new_key(&provider)?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the suite is of TLS 1.3")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(key))));
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the suite is of TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyKey(provider)))
            .with_no_client_auth();
        client.resumption = Resumption::disabled();
        Ok(Keys { server: Arc::new(server), client: Arc::new(client) })
    }

    /// With who has dialled.
    pub(super) fn accept(&self) -> std::io::Result<Tls> {
        let connection = ServerConnection::new(self.server.clone());
        Ok(Tls::new(connection.map_err(std::io::Error::other)?.into()))
    }

    /// With who is dialled. Of an address nothing is said to the other side.
    pub(super) fn dial(&self, address: SocketAddr) -> std::io::Result<Tls> {
        let name = ServerName::IpAddress(address.ip().into());
        let connection = ClientConnection::new(self.client.clone(), name);
        Ok(Tls::new(connection.map_err(std::io::Error::other)?.into()))
    }
}

/// Takes any key, but of this kind, and that the other side has its secret half.
#[derive(Debug)]
struct AnyKey(Arc<CryptoProvider>);

type Verified<T> = std::result::Result<T, rustls::Error>;

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _key: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Verified<ServerCertVerified> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Verified<HandshakeSignatureValid> {
        Err(rustls::Error::General("TLS 1.2".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Verified<HandshakeSignatureValid> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        let algorithms = &self.0.signature_verification_algorithms;
        crypto::verify_tls13_signature_with_raw_key(message, &key, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Why nothing of that is taken.
fn what_is_wrong(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::DecryptError => "what was changed on the way, or comes from somebody else",
        rustls::Error::AlertReceived(_) => "the other side refuses or has given up the encryption",
        _ => "no TLS 1.3 as members speak it",
    }
}

/// So many bytes have come, or what is wrong with them.
type Opened = std::result::Result<usize, &'static str>;

/// The encryption of one connection.
pub(super) struct Tls {
    connection: Connection,
    /// What has come before there was a session.
    opening: usize,
}

impl Tls {
    fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(SEALED_BYTES));
        Tls { connection, opening: 0 }
    }

    /// Whether something that is encrypted waits to go.
    pub(super) fn is_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Encrypts of these what has room; how much that was. None before TLS is through.
    pub(super) fn seal(&mut self, parts: &[IoSlice<'_>]) -> std::io::Result<usize> {
        if self.connection.is_handshaking() {
            return Ok(0);
        }
        self.connection.writer().write_vectored(parts)
    }

    /// Lets go what is encrypted.
    pub(super) fn send(&mut self, to: &mut impl Write) -> std::io::Result<usize> {
        self.connection.write_tls(to)
    }

    /// This side says no more.
    pub(super) fn say_goodbye(&mut self) {
        if !self.connection.is_handshaking() {
            self.connection.send_close_notify();
        }
    }

    /// As TLS does by itself after 2^24 records.
    #[cfg(test)]
    pub(super) fn change_keys(&mut self) {
        self.connection.refresh_traffic_keys().expect("TLS is through");
    }

    /// The other side has said that it says no more, and all that it has said was taken.
    pub(super) fn is_over(&mut self) -> bool {
        self.connection.reader().fill_buf().is_ok_and(<[u8]>::is_empty)
    }

    /// What only the two ends of the connection know; none before TLS is through.
    pub(super) fn exporter(&mut self) -> Option<[u8; EXPORTER_BYTES]> {
        self.connection.export_keying_material([0; EXPORTER_BYTES], EXPORTER, None).ok()
    }

    /// Whether something was decrypted and not taken.
    pub(super) fn has_plain(&mut self) -> bool {
        self.connection.reader().fill_buf().is_ok_and(|plain| !plain.is_empty())
    }

    /// Some of what was decrypted; none if nothing is there.
    pub(super) fn plain(&mut self, into: &mut [u8]) -> usize {
        self.connection.reader().read(into).unwrap_or_default()
    }

    /// Takes what has come before there is a session; [`Tls::plain`] has what was in it.
    pub(super) fn open_first(
        &mut self,
        mut sealed: &[u8],
    ) -> std::result::Result<(), &'static str> {
        let is_greeting = self.opening == 0 && sealed.first() == Some(&MAGIC[0]);
        self.opening += sealed.len();
        if self.opening > OPENING_BYTES {
            return Err("it says more than members do");
        }
        loop {
            match self.take(&mut sealed) {
                Err(_) if is_greeting => return Err(WANTS_NONE),
                Ok(taken) if taken > 0 && !sealed.is_empty() => {}
                taken => return taken.map(|_| ()),
            }
        }
    }

    /// Takes all of what has come, and hands on what was in it, from where it lies.
    pub(super) fn open(&mut self, mut sealed: &[u8], mut hand: impl FnMut(&[u8])) -> Opened {
        let mut count = self.hand_on(&mut hand);
        while !sealed.is_empty() {
            let taken = self.take(&mut sealed);
            // Also what came before something that is wrong.
            count += self.hand_on(&mut hand);
            if taken? == 0 {
                break;
            }
        }
        Ok(count)
    }

    /// Takes a part of it, none if the other side has said that it says no more.
    fn take(&mut self, sealed: &mut &[u8]) -> Opened {
        let taken = self.connection.read_tls(sealed).map_err(|_| "an absurd record of TLS")?;
        self.connection.process_new_packets().map_err(|error| what_is_wrong(&error))?;
        Ok(taken)
    }

    fn hand_on(&mut self, hand: &mut impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        loop {
            let mut reader = self.connection.reader();
            let now = match reader.fill_buf() {
                Ok(plain) if !plain.is_empty() => {
                    hand(plain);
                    plain.len()
                }
                _ => return count,
            };
            reader.consume(now);
            count += now;
        }
    }
}
