//! The smallest HTTP client that can keep a server busy: fixed bytes out, a head and a counted body in.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[derive(Debug)]
pub struct Load {
    pub per_second: f64,
    pub p50_micros: u128,
    pub p99_micros: u128,
}

pub async fn run(
    address: SocketAddr,
    path: &str,
    credential: &str,
    connections: usize,
    duration: Duration,
) -> Load {
    let request = format!("GET {path} HTTP/1.1\r\nhost: tarn\r\nauthorization: Bearer {credential}\r\n\r\n");
    let started = Instant::now();
    let clients: Vec<_> = (0..connections)
        .map(|_| tokio::spawn(keep_asking(address, request.clone(), started + duration)))
        .collect();
    let mut times = Vec::new();
    for client in clients {
        times.extend(client.await.unwrap());
    }
    let elapsed = started.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_micros();
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let per_second = times.len() as f64 / elapsed;
    Load { per_second, p50_micros: at(50), p99_micros: at(99) }
}

/// The time of each answer.
async fn keep_asking(address: SocketAddr, request: String, until: Instant) -> Vec<Duration> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut times, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    while Instant::now() < until {
        let asked = Instant::now();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut filled = 0;
        let length = loop {
            if let Some(length) = answer_length(&buffer[..filled]) {
                break length;
            }
            let read = stream.read(&mut buffer[filled..]).await.unwrap();
            assert!(read > 0, "the server hung up");
            filled += read;
        };
        while filled < length {
            filled += stream.read(&mut buffer[filled..]).await.unwrap();
        }
        times.push(asked.elapsed());
    }
    times
}

/// Head and body together, once the head is there. Anything but 200 ends the benchmark.
fn answer_length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..head]).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let mut lines = text.lines().filter_map(|line| line.split_once(": "));
    let length =
        lines.find_map(|(name, value)| name.eq_ignore_ascii_case("content-length").then_some(value)).unwrap();
    Some(head + length.parse::<usize>().unwrap())
}
