//! What a network does without Terral, beside which its figures stand: bytes copied over one plain
//! TCP connection, and round trips that wait.
//!
//! Invariants: whoever does not come or answer is an error after a while. Not here: who is where.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// One that is silent for longer has gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// An address that does not answer sooner is no way.
const DIAL: Duration = Duration::from_secs(3);

fn prepared(stream: TcpStream) -> Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Listens at all addresses, at any port that is free.
pub fn listen() -> Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).context("listening")?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The next that comes.
pub fn accept(listener: &TcpListener) -> Result<TcpStream> {
    let begin = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return prepared(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("a plain connection"),
        }
        if begin.elapsed() > PATIENCE {
            bail!("nobody comes for a plain connection: is a firewall between the machines?");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A connection to the first of these that answers.
pub fn dial(addresses: &[SocketAddr]) -> Result<TcpStream> {
    for address in addresses {
        if let Ok(stream) = TcpStream::connect_timeout(address, DIAL) {
            return prepared(stream);
        }
    }
    bail!("no plain connection to any of {addresses:?}: is a firewall between the machines?");
}

/// Sends so many bytes from a buffer once the other side is ready.
pub fn send(stream: &mut (impl Read + Write), buffer: &[u8], bytes: u64) -> Result<()> {
    wait_for_word(stream)?;
    let mut left = bytes;
    while left > 0 {
        let now = left.min(buffer.len() as u64) as usize;
        stream.write_all(&buffer[..now]).context("a plain copy")?;
        left -= now as u64;
    }
    stream.flush().context("a plain copy")
}

/// Has the other side send so many bytes, and takes them into a buffer.
pub fn receive(stream: &mut (impl Read + Write), buffer: &mut [u8], bytes: u64) -> Result<()> {
    stream.write_all(&[1]).and_then(|()| stream.flush()).context("a plain copy")?;
    let mut left = bytes;
    while left > 0 {
        let now = left.min(buffer.len() as u64) as usize;
        stream.read_exact(&mut buffer[..now]).context("a plain copy")?;
        left -= now as u64;
    }
    Ok(())
}

fn wait_for_word(stream: &mut impl Read) -> Result<()> {
    stream.read_exact(&mut [0]).context("a plain copy")
}

/// Sends a buffer and waits for it to come back, so often.
pub fn round_trips(stream: &mut (impl Read + Write), buffer: &mut [u8], count: u64) -> Result<()> {
    (0..count).try_for_each(|_| {
        stream.write_all(buffer)?;
        stream.read_exact(buffer)
    })?;
    Ok(())
}

/// The other side of that.
pub fn echo(stream: &mut (impl Read + Write), buffer: &mut [u8], count: u64) -> Result<()> {
    (0..count).try_for_each(|_| {
        stream.read_exact(buffer)?;
        stream.write_all(buffer)
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{accept, dial, echo, listen, receive, round_trips, send};

    #[test]
    fn bytes_come_as_they_were_sent_and_round_trips_end() {
        let listener = listen().expect("listens");
        let port = listener.local_addr().expect("an address").port();
        let far = std::thread::spawn(move || {
            let mut stream = accept(&listener).expect("comes");
            send(&mut stream, &[7; 1000], 2500).expect("sends");
            echo(&mut stream, &mut [0; 16], 3).expect("echoes");
        });
        let mut stream = dial(&[([127, 0, 0, 1], port).into()]).expect("dials");
        let mut buffer = [0; 600];
        receive(&mut stream, &mut buffer, 2500).expect("receives");
        assert_eq!(buffer, [7; 600]);
        round_trips(&mut stream, &mut [9; 16], 3).expect("goes to and fro");
        far.join().expect("ends");
    }
}
