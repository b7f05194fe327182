//! Frames of an endpoint over the loopback device beside the least that can carry them: rustls
//! alone over the same kind of socket, or the socket alone. Pairs in turn within one run; what
//! counts is their ratio. Two threads, as two members are: one says all, the other answers once.
//!
//! Not here: many members, and a network.

#![allow(clippy::print_stdout)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::ClockId;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, ServerConfig, ServerConnection,
    SignatureScheme, StreamOwned,
};
use terral_format::ids::{Member, ServerId};
use terral_format::moment::Moment;
use terral_format::wire::roster::Secret;
use terral_network::endpoint::{Endpoint, Event, Peer, Refused, Session};
use terral_network::tcp::{Encryption, Identity, PartitionId, Settings, Tcp, public_half};

const ROUNDS: usize = 15;
const BYTES: usize = 256 << 20;

/// What carrying [`BYTES`] has cost.
struct Cost {
    time: Duration,
    /// Of both threads.
    processor: Duration,
}

/// When it began.
struct Begin(Instant, Duration);

fn processor() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Begin {
    fn now() -> Self {
        Begin(Instant::now(), processor())
    }

    fn elapsed(&self) -> Cost {
        Cost { time: self.0.elapsed(), processor: processor() - self.1 }
    }
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Both ends of a connection.
fn sockets() -> [TcpStream; 2] {
    let listener = TcpListener::bind(loopback()).expect("the loopback device");
    let one = TcpStream::connect(listener.local_addr().expect("it listens")).expect("connect");
    let (other, _) = listener.accept().expect("it has dialled");
    let both = [one, other];
    both.iter().for_each(|end| end.set_nodelay(true).expect("a socket"));
    both
}

/// How long it takes until all frames of so many bytes are there, and that is known.
fn carried(
    [mut one, mut other]: [impl Read + Write + Send + 'static; 2],
    frame_bytes: usize,
) -> Cost {
    let frames = BYTES / frame_bytes;
    let reader = std::thread::spawn(move || {
        let mut frame = vec![0; frame_bytes];
        other.write_all(&[1]).expect("a connection");
        other.flush().expect("a connection");
        (0..frames).for_each(|_| other.read_exact(&mut frame).expect("a frame"));
        other.write_all(&[1]).expect("a connection");
        other.flush().expect("a connection");
    });
    let (frame, mut word) = (vec![7; frame_bytes], [0]);
    one.read_exact(&mut word).expect("it is there");
    let begin = Begin::now();
    (0..frames).for_each(|_| one.write_all(&frame).expect("a connection"));
    one.read_exact(&mut word).expect("an answer");
    let time = begin.elapsed();
    reader.join().expect("it ends");
    time
}

/// Takes whatever it is told: here nobody else is.
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
        Ok(HandshakeSignatureValid::assertion())
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

/// rustls as its users have it, with the suite that members have.
fn configurations() -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let provider = Arc::new(CryptoProvider {
        cipher_suites: vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256],
        ..ring::default_provider()
    });
    let key = [48, 46, 2, 1, 0, 48, 5, 6, 3, 43, 101, 112, 4, 34, 4, 32].into_iter();
    let key = PrivatePkcs8KeyDer::from(key.chain([9; 32]).collect::<Vec<u8>>());
    let key = provider.key_provider.load_private_key(PrivateKeyDer::Pkcs8(key)).expect("a key");
    let public = CertificateDer::from(key.public_key().expect("a key").to_vec());
    let key = Arc::new(CertifiedKey::new(vec![public], key));
    let client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a suite of TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a suite of TLS 1.3")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    (Arc::new(client), Arc::new(server))
}

/// Either side is one of the two.
enum Alone {
    Client(Box<StreamOwned<ClientConnection, TcpStream>>),
    Server(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Read for Alone {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Alone::Client(stream) => stream.read(into),
            Alone::Server(stream) => stream.read(into),
        }
    }
}

impl Write for Alone {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Alone::Client(stream) => stream.write(bytes),
            Alone::Server(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Alone::Client(stream) => stream.flush(),
            Alone::Server(stream) => stream.flush(),
        }
    }
}

fn rustls_alone(frame_bytes: usize) -> Cost {
    let ([one, other], (client, server)) = (sockets(), configurations());
    let name = ServerName::try_from("terral").expect("a name");
    let client = ClientConnection::new(client, name).expect("it is ready");
    let server = ServerConnection::new(server).expect("it is ready");
    carried(
        [
            Alone::Client(Box::new(StreamOwned::new(client, one))),
            Alone::Server(Box::new(StreamOwned::new(server, other))),
        ],
        frame_bytes,
    )
}

fn secret(number: u16) -> Secret {
    Secret([number as u8; 32])
}

fn member(number: u16, encryption: Encryption) -> Tcp {
    let identity = Identity {
        partition: PartitionId(1),
        member: Member::new(number).expect("14 bits"),
        server: ServerId(number.into()),
        secret: secret(number),
    };
    let begin = Instant::now();
    let clock = Box::new(move || Moment(1 + begin.elapsed().as_nanos() as u64));
    let settings = Settings { encryption, ..Settings::default() };
    Tcp::listen(loopback(), identity, settings, clock).expect("the loopback device")
}

fn next(tcp: &mut Tcp) -> Event {
    loop {
        let until = tcp.now() + Duration::from_secs(1);
        if let Some(event) = tcp.next(until) {
            return event;
        }
    }
}

/// By which call a frame is sent.
#[derive(Clone, Copy, Debug)]
enum Call {
    Send,
    /// In two parts, as what is said of some bytes of a file, and they.
    SendNow,
}

fn send(tcp: &mut Tcp, session: Session, frame: &[u8], call: Call) {
    let (begin, rest) = frame.split_at(frame.len().min(64));
    while let Err(refused) = match call {
        Call::Send => tcp.send(session, frame),
        Call::SendNow => tcp.send_now(session, &[begin, rest]),
    } {
        assert_eq!(refused, Refused::Full);
        assert_eq!(next(tcp), Event::Room(session));
    }
}

fn frames_of((encryption, call): (Encryption, Call), frame_bytes: usize) -> Cost {
    let frames = BYTES / frame_bytes;
    let (mut one, mut other) = (member(1, encryption), member(2, encryption));
    let peer = |number: u16, tcp: &Tcp| Peer {
        member: Member::new(number).expect("14 bits"),
        server: ServerId(number.into()),
        key: public_half(&secret(number)),
        addresses: vec![tcp.address().expect("it listens")],
    };
    one.admit(peer(2, &other));
    other.admit(peer(1, &one));
    one.reach(Member::new(2).expect("14 bits"));
    let reader = std::thread::spawn(move || {
        let Event::Connected(session) = next(&mut other) else { panic!("no session") };
        for _ in 0..frames {
            let Event::Frame(_, frame) = next(&mut other) else { panic!("no frame") };
            assert_eq!(frame.len(), frame_bytes);
        }
        send(&mut other, session, &[1], Call::Send);
        while !matches!(next(&mut other), Event::Lost(..)) {}
    });
    let Event::Connected(session) = next(&mut one) else { panic!("no session") };
    let (frame, begin) = (vec![7; frame_bytes], Begin::now());
    (0..frames).for_each(|_| send(&mut one, session, &frame, call));
    while !matches!(next(&mut one), Event::Frame(..)) {}
    let time = begin.elapsed();
    one.cut(session);
    reader.join().expect("it ends");
    time
}

fn median(of: &[(Cost, Cost)], what: impl Fn(&(Cost, Cost)) -> f64) -> f64 {
    let mut all: Vec<f64> = of.iter().map(what).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Arguments are lengths of frames, in KiB.
fn main() {
    let asked: Vec<usize> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let lengths = if asked.is_empty() { vec![4, 64, 256, 1024] } else { asked };
    println!("frames of    sent by   beside          MB/s   its MB/s   of its rate   by processor");
    let kinds = [Encryption::Tls, Encryption::None];
    for (kib, encryption, call) in lengths.into_iter().flat_map(|kib| {
        let ways = kinds.into_iter().flat_map(|kind| [(kind, Call::Send), (kind, Call::SendNow)]);
        ways.map(move |(kind, call)| (kib, kind, call))
    }) {
        let ours = || frames_of((encryption, call), kib << 10);
        let pair = |_| match encryption {
            Encryption::Tls => (ours(), rustls_alone(kib << 10)),
            Encryption::None => (ours(), carried(sockets(), kib << 10)),
        };
        let all: Vec<(Cost, Cost)> = (0..ROUNDS).map(pair).collect();
        let rate = |cost: &Cost| BYTES as f64 / 1e6 / cost.time.as_secs_f64();
        println!(
            "{kib:>5} KiB    {:<7}   {:<12} {:>7.0}    {:>7.0}   {:>11.2}   {:>12.2}",
            format!("{call:?}"),
            if encryption == Encryption::Tls { "rustls alone" } else { "a socket" },
            median(&all, |(ours, _)| rate(ours)),
            median(&all, |(_, its)| rate(its)),
            median(&all, |(ours, its)| its.time.as_secs_f64() / ours.time.as_secs_f64()),
            median(&all, |(ours, its)| its.processor.as_secs_f64() / ours.processor.as_secs_f64()),
        );
    }
}
