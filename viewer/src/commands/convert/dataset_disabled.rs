//! Replaces `dataset` in a build without Parquet.

use crate::commands::convert::ConvertArguments;
use crate::output::{Failure, Page, Status};

pub(crate) fn run(_arguments: &ConvertArguments, _page: &mut Page<'_>) -> Result<Status, Failure> {
    let text = "this build writes no Parquet: build highwater with its default feature 'parquet'";
    Err(Failure::Usage(text.to_owned()))
}
