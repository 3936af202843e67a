//! The network between an agent and its control plane, which a test can cut.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// While it is cut, nothing is refused and nothing arrives: what was open is silent, what is opened hears nothing.
pub struct Wire {
    pub url: String,
    cut: watch::Sender<bool>,
    carrying: JoinHandle<()>,
}

impl Wire {
    pub async fn to(url: &str) -> Self {
        let to: SocketAddr = url.trim_start_matches("http://").parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let cut = watch::channel(false).0;
        let cuts = cut.subscribe();
        let carrying = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, to, cuts.clone()));
            }
        });
        Self { url, cut, carrying }
    }

    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub fn mend(&self) {
        self.cut.send_replace(false);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.carrying.abort();
    }
}

/// One connection. What is cut off once is lost, and closed when the network is back.
async fn carry(mut near: TcpStream, to: SocketAddr, mut cut: watch::Receiver<bool>) -> Option<()> {
    whole(&mut cut).await?;
    let mut far = TcpStream::connect(to).await.ok()?;
    let mut until = cut.clone();
    let was_cut = tokio::select! {
        _ended = copy_bidirectional(&mut near, &mut far) => false,
        held = async { until.wait_for(|cut| *cut).await.is_ok() } => held,
    };
    if was_cut {
        whole(&mut cut).await?;
    }
    Some(())
}

/// Waits until nothing is cut; `None` when the test is over.
async fn whole(cut: &mut watch::Receiver<bool>) -> Option<()> {
    cut.wait_for(|cut| !*cut).await.ok().map(drop)
}
