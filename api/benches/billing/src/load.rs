//! Closed loops and the table of what they did.

use std::time::{Duration, Instant};

const WARM_UP: Duration = Duration::from_millis(500);
const MEASURED: Duration = Duration::from_secs(4);

#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub per_second: f64,
    pub p50: Duration,
    pub p99: Duration,
}

/// `clients` loops of `call(client, n)`, each call doing `units` things.
pub async fn closed_loop<F, C>(clients: usize, units: usize, call: F) -> Load
where
    F: Fn(usize, usize) -> C + Clone + Send + 'static,
    C: Future<Output = ()> + Send,
{
    let begin = Instant::now();
    let loops: Vec<_> = (0..clients)
        .map(|client| {
            let call = call.clone();
            tokio::spawn(async move {
                let mut took = Vec::new();
                for n in 0.. {
                    let started = Instant::now();
                    if started - begin > WARM_UP + MEASURED {
                        break;
                    }
                    call(client, n).await;
                    if started - begin > WARM_UP {
                        took.push(started.elapsed());
                    }
                }
                took
            })
        })
        .collect();
    let mut took = Vec::new();
    for each in loops {
        took.extend(each.await.unwrap());
    }
    let measured = begin.elapsed() - WARM_UP;
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    Load { per_second: (took.len() * units) as f64 / measured.as_secs_f64(), p50: at(0.5), p99: at(0.99) }
}

/// One piece of work done once.
pub async fn once(units: usize, work: impl Future<Output = ()>) -> Load {
    let started = Instant::now();
    work.await;
    let took = started.elapsed();
    Load { per_second: units as f64 / took.as_secs_f64(), p50: took, p99: took }
}

#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<(String, Load)>,
}

impl Table {
    pub fn heading(&self, text: &str) {
        println!("\n{text:<58} {:>10} {:>10} {:>10}", "per s", "p50 ms", "p99 ms");
    }

    pub fn row(&mut self, name: impl Into<String>, load: Load) {
        let name = name.into();
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "{name:<58} {:>10.0} {:>10.2} {:>10.2}",
            load.per_second,
            millis(load.p50),
            millis(load.p99)
        );
        self.rows.push((name, load));
    }

    fn rate(&self, name: &str) -> Option<f64> {
        self.rows.iter().find(|(row, _)| row == name).map(|(_, load)| load.per_second)
    }

    /// What the bars speak of.
    pub fn ratios(&self) {
        println!();
        for (mine, theirs) in [
            ("tarn sqlite, 1 client, 1 a commit", "raw sqlite, 1 row a commit"),
            ("tarn sqlite, 1 client, 200 a commit", "raw sqlite, 200 rows a commit"),
            ("tarn sqlite, settlement batches of 200", "raw sqlite, 200 rows a commit"),
            ("tarn sqlite, 1 client, 100 a commit", "doubleentry sqlite, 1 client, 100 a call"),
            ("tarn sqlite, 1 client, 1 a commit", "doubleentry sqlite, 1 client, 1 a call"),
            ("tarn sqlite, 32 clients, 1 a call", "tarn sqlite, 1 client, 1 a commit"),
            ("tarn postgres, 8 clients, 1 a call", "pgledger-shaped, 8 clients, spread"),
            ("tarn postgres, 1 client, 100 a commit", "pgledger-shaped, 1 client, 100 a transaction"),
            ("tarn postgres, 8 clients, 1 a call", "tarn postgres, 8 clients to 2 accounts of Tarn's"),
            ("pgledger-shaped, 8 clients, one hot account", "pgledger-shaped, 8 clients, spread"),
        ] {
            if let (Some(a), Some(b)) = (self.rate(mine), self.rate(theirs)) {
                println!("{:>6.2} x  {mine}  /  {theirs}", a / b);
            }
        }
    }
}
