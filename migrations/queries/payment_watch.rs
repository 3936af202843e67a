//! How payment providers fare, for the alerts about them.

use sqlx::{query, query_as};
use tarn_protocol::units::Timestamp;
use tarn_rows::payments::{PaymentProviderRaw, PaymentProviderRow};

use super::{Conn, Result, take};

pub async fn payment_provider(conn: &mut Conn, provider: &str) -> Result<Option<PaymentProviderRow>> {
    let raw = query_as!(
        PaymentProviderRaw,
        "SELECT provider, probe_at, failing_since, refused_at FROM payment_providers WHERE provider = $1",
        provider
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// What the last probe found, and when the next one is due.
pub async fn payment_provider_probed(
    conn: &mut Conn,
    provider: &str,
    probe_at: Timestamp,
    failing_since: Option<Timestamp>,
) -> Result<()> {
    query!(
        "INSERT INTO payment_providers (provider, probe_at, failing_since, refused_at) VALUES ($1, $2, $3, NULL)
         ON CONFLICT (provider) DO UPDATE SET probe_at = excluded.probe_at, failing_since = excluded.failing_since",
        provider,
        probe_at.as_micros(),
        failing_since.map(Timestamp::as_micros)
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Callbacks in its name are refused in number, the last one at `refused_at`; `None`: not any more.
pub async fn payment_callbacks_refused(
    conn: &mut Conn,
    provider: &str,
    refused_at: Option<Timestamp>,
) -> Result<()> {
    query!(
        "INSERT INTO payment_providers (provider, probe_at, failing_since, refused_at) VALUES ($1, 0, NULL, $2)
         ON CONFLICT (provider) DO UPDATE SET refused_at = excluded.refused_at",
        provider,
        refused_at.map(Timestamp::as_micros)
    )
    .execute(conn)
    .await?;
    Ok(())
}
