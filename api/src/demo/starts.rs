//! How long a start takes: from the customer's request to `running`, as the customer's own `wait` sees it.

use serde_json::json;

use super::client::Client;
use super::{DemoError, screen};
use crate::clock::Clock;
use crate::entropy::Entropy;

/// Rents and deletes a Pool-96 `rounds` times, one after the other, and prints the spread in milliseconds.
pub(super) async fn measure(
    customer: &Client,
    clock: &dyn Clock,
    entropy: &dyn Entropy,
    rounds: usize,
) -> Result<(), DemoError> {
    let mut millis = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let key = format!("demo-{:032x}", entropy.bits());
        let order = json!({"offer_id": "pool-96", "label": "start", "command": ["/bin/sleep", "600"]});
        let asked = clock.now();
        let created = customer.post_once("/v1/instances", order, &key).await?;
        let id = created.text("/id")?.to_owned();
        customer.get(&format!("/v1/instances/{id}/wait?state=running&timeout=30")).await?;
        millis.push(clock.now().micros_since(asked) / 1000);
        customer.delete(&format!("/v1/instances/{id}")).await?;
        customer.get(&format!("/v1/instances/{id}/wait?state=terminated&timeout=30")).await?;
    }
    millis.sort_unstable();
    screen::step(&format!("request to running over {rounds} starts of a Pool-96, in milliseconds:"));
    let heading = ["fastest", "median", "p95", "slowest"].map(str::to_owned).to_vec();
    let row = [0, 50, 95, 100].map(|percent| percentile(&millis, percent).to_string()).to_vec();
    screen::table(&[heading, row]);
    Ok(())
}

/// The value that `percent` of the sorted `values` do not exceed (nearest rank); 0 of none.
fn percentile(values: &[i64], percent: usize) -> i64 {
    let rank = (values.len() * percent).div_ceil(100).max(1);
    values.get(rank - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let values: Vec<i64> = (1..=20).collect();
        assert_eq!([0, 50, 95, 100].map(|percent| percentile(&values, percent)), [1, 10, 19, 20]);
        assert_eq!(percentile(&[7], 95), 7);
        assert_eq!(percentile(&[], 95), 0);
    }
}
