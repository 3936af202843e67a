//! The real agent, broker, stand-ins and tenant program on a simulated host, under a real control plane, in real time: what stays
//! true when a process dies at the wrong moment, when many want the same cards, and when nobody is there to ask.
//!
//! Needs the workspace's artefacts beside the test executable.

mod agent_kills;
mod audit;
mod bad_links;
mod broker_kill;
mod chaos;
mod control_plane;
mod control_plane_kills;
mod crowd;
mod customer;
mod cut_off;
mod delete_races;
mod endings;
mod exhausted;
mod host;
mod life;
mod neighbours;
mod payments_kill;
mod processes;
mod site;
mod wire;

use std::time::Duration;

use serde_json::Value;

/// Looks again and again, for at most `seconds`.
#[track_caller]
fn eventually<T, L>(what: &str, seconds: u64, look: L) -> impl Future<Output = T>
where
    L: AsyncFnMut() -> Option<T>,
{
    let place = std::panic::Location::caller();
    let mut look = look;
    async move {
        let found = tokio::time::timeout(Duration::from_secs(seconds), async {
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        });
        found.await.unwrap_or_else(|_| panic!("{place}: {what}, not within {seconds} s"))
    }
}

/// Every item of a list, page by page.
async fn every_item(path: &str, get: impl AsyncFn(String) -> Value) -> Vec<Value> {
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(format!("{path}?limit=100{cursor}")).await;
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next_cursor"].as_str() else { return items };
        cursor = format!("&cursor={next}");
    }
}
