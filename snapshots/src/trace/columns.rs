//! Declares tables that are stored as columns.

/// Declares a table as columns of equal length, indexed by an id, and its row type. `beside` lists the fields that are
/// not columns, each with a function that returns the field's value for a row.
macro_rules! columns {
    (
        $(#[$table_meta:meta])* $table:ident by $id:ident,
        $(#[$row_meta:meta])* $row:ident { $($(#[$meta:meta])* $column:ident: $type:ty,)+ }
        beside { $($(#[$field_meta:meta])* $field:ident: $field_type:ty,)* }
        $($(#[$more_meta:meta])* $more:ident: $more_type:ty = $of:path,)*
    ) => {
        $(#[$table_meta])*
        #[derive(Clone, Debug, Default)]
        pub struct $table {
            $($(#[$meta])* pub $column: Vec<$type>,)+
            $($(#[$field_meta])* pub $field: $field_type,)*
        }

        $(#[$row_meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $row {
            $($(#[$meta])* pub $column: $type,)+
            $($(#[$more_meta])* pub $more: $more_type,)*
        }

        impl $table {
            /// Number of rows.
            pub fn len(&self) -> usize {
                self.device.len()
            }

            /// Returns whether there are no rows.
            pub fn is_empty(&self) -> bool {
                self.device.is_empty()
            }

            /// The ids, in order.
            pub fn ids(&self) -> impl DoubleEndedIterator<Item = $id> + ExactSizeIterator + use<> {
                (0..self.len() as u32).map($id)
            }

            /// Returns the row of `id`. Panics if it does not exist.
            #[inline]
            pub fn get(&self, id: $id) -> $row {
                crate::yielding::tick();
                let row = id.index().expect("no row has this id");
                $row { $($column: self.$column[row],)+ $($more: $of(self, id),)* }
            }
        }
    };
}

pub(super) use columns;
