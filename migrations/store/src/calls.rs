//! One method of [`crate::Tx`] for each query, dispatched to the engine.
//!
//! The lists below are the contents of the store. A query's own words are beside its SQL, in `migrations/queries/<noun>.rs`.

mod fleet;
mod invoices;
mod money;
mod operators;
mod payments;
mod people;
mod rentals;
mod reports;

/// `calls! noun { name(argument: Type) -> Type; }` for `queries::noun::name(conn, argument)`.
macro_rules! calls {
    ($noun:ident { $($name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty;)* }) => {
        impl crate::tx::Tx {$(
            #[doc = concat!("`", stringify!($name), "` of `migrations/queries/", stringify!($noun), ".rs`.")]
            pub async fn $name(&mut self $(, $arg: $ty)*) -> Result<$ret, crate::error::StoreError> {
                let done = match &mut self.conn {
                    crate::tx::Conn::Sqlite(conn) => {
                        tarn_store_sqlite::queries::$noun::$name(conn $(, $arg)*).await
                    }
                    crate::tx::Conn::Postgres(conn) => {
                        tarn_store_postgres::queries::$noun::$name(conn $(, $arg)*).await
                    }
                };
                self.checked(done)
            }
        )*}
    };
}
use calls;
