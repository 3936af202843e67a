//! The price book: appended to, never changed.

use sqlx::{query, query_as};
use tarn_protocol::ids::OfferId;
use tarn_protocol::units::Timestamp;
use tarn_rows::offers::{PriceRaw, PriceRow};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_price {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            PriceRaw,
            "SELECT version, sku, micros_per_hour, effective_from, created_by, created_at FROM price_book " + $tail
            $(, $arg)*
        )
    };
}

/// Two writers of the same version, or of the same instant, collide on a constraint.
pub async fn append_price(conn: &mut Conn, price: &PriceRow) -> Result<()> {
    let row = put(price)?;
    query!(
        "INSERT INTO price_book (version, sku, micros_per_hour, effective_from, created_by, created_at)
         VALUES ($1, $2, $3, $4, $5, $6)",
        row.version,
        row.sku,
        row.micros_per_hour,
        row.effective_from,
        row.created_by,
        row.created_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What an offer costs at an instant.
pub async fn price_at(conn: &mut Conn, sku: &OfferId, at: Timestamp) -> Result<Option<PriceRow>> {
    let raw = select_price!(
        "WHERE sku = $1 AND effective_from <= $2 ORDER BY effective_from DESC LIMIT 1",
        sku.as_str(),
        at.as_micros()
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// Every version of every offer, oldest first.
pub async fn prices(conn: &mut Conn) -> Result<Vec<PriceRow>> {
    take_all(select_price!("ORDER BY sku, version").fetch_all(conn).await?)
}

pub async fn prices_of(conn: &mut Conn, sku: &OfferId) -> Result<Vec<PriceRow>> {
    take_all(select_price!("WHERE sku = $1 ORDER BY version", sku.as_str()).fetch_all(conn).await?)
}
