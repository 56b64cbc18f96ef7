//! Messages of JSON-RPC 2.0, one per line.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read as _};
use std::panic::resume_unwind;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use serde_json::{Value, json};

const MAX_LINE: u64 = 1 << 20;

const MAX_BATCH: usize = 64;

/// Maximum number of lines that wait in the channel from the reader, and in the queue behind it, while a request is
/// being answered.
const MAX_WAITING: usize = 64;

/// The error codes of JSON-RPC, and one of the Model Context Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// The line is not JSON.
    Parse = -32700,
    /// The JSON is not a request.
    Request = -32600,
    /// The method does not exist.
    Method = -32601,
    /// The parameters of the method are invalid.
    Parameters = -32602,
    /// The version of the protocol is not supported.
    Version = -32022,
}

#[derive(Clone, Debug)]
pub(super) struct Refusal {
    code: Code,
    text: String,
    data: Option<Value>,
}

impl Refusal {
    pub(super) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), data: None }
    }

    pub(super) fn with_data(self, data: Value) -> Self {
        Self { data: Some(data), ..self }
    }

    fn answer(self, id: &Value) -> Value {
        let mut error = json!({"code": self.code as i32, "message": self.text});
        if let Some(data) = self.data {
            error["data"] = data;
        }
        json!({"jsonrpc": "2.0", "id": id, "error": error})
    }
}

/// Reads lines from `input`, and passes the answer to each to `write`, until the input ends or `write` fails. A request
/// that the client cancels before it is answered has no answer, and is not started if the cancellation arrives in time.
///
/// `answer` returns the result of a method with its parameters.
///
/// # Errors
/// Fails if the input cannot be read, or if `write` fails.
pub(super) fn serve(
    input: impl BufRead + Send + 'static,
    mut answer: impl FnMut(&str, &Value) -> Result<Value, Refusal>,
    mut write: impl FnMut(&Value) -> io::Result<()>,
) -> io::Result<()> {
    let (sender, received) = sync_channel(MAX_WAITING);
    let reader = thread::Builder::new().name("highwater-requests".to_owned());
    let reader = reader.spawn(move || read_lines(input, &sender))?;
    let mut waiting = VecDeque::new();
    while let Some(line) = waiting.pop_front().or_else(|| received.recv().ok()) {
        let Some(line) = line else {
            let text = format!("a line is longer than {MAX_LINE} bytes: send a smaller request");
            write(&Refusal::new(Code::Request, text).answer(&Value::Null))?;
            continue;
        };
        let mut is_cancelled = |id: &Value| {
            waiting.extend(received.try_iter().take(MAX_WAITING - waiting.len()));
            waiting.iter().flatten().any(|line| cancels(line, id))
        };
        if let Some(answer) = answer_line(&line, &mut answer, &mut is_cancelled) {
            write(&answer)?;
        }
    }
    reader.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Sends the lines of `input` that are not blank, until the input ends or the receiver is dropped. Sends `None` for a
/// line that is too long.
fn read_lines(mut input: impl BufRead, lines: &SyncSender<Option<Vec<u8>>>) -> io::Result<()> {
    loop {
        let mut line = Vec::new();
        let read = input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        let is_cut = read as u64 == MAX_LINE && !line.ends_with(b"\n");
        if is_cut {
            skip_line(&mut input)?;
        }
        let is_blank = line.trim_ascii().is_empty() && !is_cut;
        if !is_blank && lines.send((!is_cut).then_some(line)).is_err() {
            return Ok(());
        }
    }
}

fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let part = input.fill_buf()?;
        let end = part.iter().position(|byte| *byte == b'\n');
        let (used, is_over) = (end.map_or(part.len(), |end| end + 1), end.is_some() || part.is_empty());
        input.consume(used);
        if is_over {
            return Ok(());
        }
    }
}

fn cancels(line: &[u8], id: &Value) -> bool {
    let is_cancel =
        |message: &Value| message["method"] == "notifications/cancelled" && message["params"]["requestId"] == *id;
    match serde_json::from_slice(line) {
        Ok(Value::Array(batch)) => batch.iter().any(is_cancel),
        message => message.is_ok_and(|message| is_cancel(&message)),
    }
}

/// Returns the response to a line with a request or a batch of requests; `None` if none is needed.
fn answer_line(
    line: &[u8],
    answer: &mut impl FnMut(&str, &Value) -> Result<Value, Refusal>,
    is_cancelled: &mut impl FnMut(&Value) -> bool,
) -> Option<Value> {
    match serde_json::from_slice(line) {
        Err(why) => {
            let text = format!("invalid JSON: {why}; send one object a line");
            Some(Refusal::new(Code::Parse, text).answer(&Value::Null))
        }
        Ok(Value::Array(batch)) if batch.is_empty() || batch.len() > MAX_BATCH => {
            let text = format!("a batch of {} requests: send 1 to {MAX_BATCH}", batch.len());
            Some(Refusal::new(Code::Request, text).answer(&Value::Null))
        }
        Ok(Value::Array(batch)) => {
            let mut is_cancelled = |id: &Value| cancels(line, id) || is_cancelled(id);
            let one = |message| answer_message(message, answer, &mut is_cancelled);
            let answers: Vec<Value> = batch.iter().filter_map(one).collect();
            (!answers.is_empty()).then_some(Value::Array(answers))
        }
        Ok(message) => answer_message(&message, answer, is_cancelled),
    }
}

/// Returns the response to a message; `None` for a notification, a response of the client, and a cancelled request.
fn answer_message(
    message: &Value,
    answer: &mut impl FnMut(&str, &Value) -> Result<Value, Refusal>,
    is_cancelled: &mut impl FnMut(&Value) -> bool,
) -> Option<Value> {
    let is_answer = message.get("result").is_some() || message.get("error").is_some();
    if is_answer && message.get("method").is_none() {
        return None;
    }
    let id = message.get("id");
    // An answer repeats the id, so its length is limited.
    let is_id = |id: &Value| id.is_number() || id.as_str().is_some_and(|id| id.len() <= 1024);
    let Some(method) = message.get("method").and_then(Value::as_str) else {
        let id = id.filter(|id| is_id(id)).unwrap_or(&Value::Null);
        return Some(Refusal::new(Code::Request, "not a request: expected an object with a method").answer(id));
    };
    let id = id?;
    if !is_id(id) {
        let refusal = Refusal::new(Code::Request, "invalid id: expected a number, or a string of at most 1024 bytes");
        return Some(refusal.answer(&Value::Null));
    }
    // Clients must not cancel the beginning of a session.
    let mut is_over = || method != "initialize" && is_cancelled(id);
    if is_over() {
        return None;
    }
    let outcome = answer(method, message.get("params").unwrap_or(&Value::Null));
    if is_over() {
        return None;
    }
    Some(match outcome {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(refusal) => refusal.answer(id),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;

    /// The answers to `input`, where the method `echo` returns its parameters.
    fn answers(input: &[u8]) -> Vec<Value> {
        let mut answers = Vec::new();
        let echo = |method: &str, parameters: &Value| match method {
            "echo" => Ok(parameters.clone()),
            _ => Err(Refusal::new(Code::Method, format!("unknown method {method}"))),
        };
        let write = |answer: &Value| {
            answers.push(answer.clone());
            Ok(())
        };
        serve(io::Cursor::new(input.to_vec()), echo, write).unwrap();
        answers
    }

    /// A point in an input: it is read after `wait`, and reports to `reached` that everything before it was.
    struct Point {
        wait: Option<Receiver<()>>,
        reached: Option<SyncSender<()>>,
    }

    impl io::Read for Point {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            if let Some(wait) = self.wait.take() {
                wait.recv().unwrap();
            }
            if let Some(reached) = self.reached.take() {
                reached.send(()).unwrap();
            }
            Ok(0)
        }
    }

    /// The ids of the answers to `first` and `second`, and the number of requests that were answered or begun; `second`
    /// is read when the first request has begun, which ends when all is read.
    fn ids_and_begun(first: &'static [u8], second: &'static [u8]) -> (Vec<Value>, usize) {
        let ((begin, begun), (reached, end)) = (sync_channel(1), sync_channel(1));
        let middle = Point { wait: Some(begun), reached: None };
        let input = first.chain(middle).chain(second).chain(Point { wait: None, reached: Some(reached) });
        let (mut asked, mut ids) = (0, Vec::new());
        let answer = |_: &str, _: &Value| {
            if asked == 0 {
                begin.send(()).unwrap();
                end.recv().unwrap();
            }
            asked += 1;
            Ok(Value::Null)
        };
        let write = |answer: &Value| {
            let batch = answer.as_array().map_or(std::slice::from_ref(answer), Vec::as_slice);
            ids.extend(batch.iter().map(|answer| answer["id"].clone()));
            Ok(())
        };
        serve(io::BufReader::new(input), answer, write).unwrap();
        (ids, asked)
    }

    #[test]
    fn a_request_that_the_client_cancels_has_no_answer() {
        let first = br#"{"id":1,"method":"other"}
"#;
        let cancelled = br#"{"method":"notifications/cancelled","params":{"requestId":1,"reason":"too slow"}}
{"id":1,"method":"other"}
"#;
        assert_eq!(ids_and_begun(first, cancelled), (vec![1.into()], 2), "an id that is used again is another request");
        let others = br#"{"id":"1","method":"other"}
{"id":2,"method":"other"}
[{"id":3,"method":"other"},{"id":4,"method":"other"},{"method":"notifications/cancelled","params":{"requestId":3}}]
{"method":"notifications/cancelled","params":{"requestId":"1"}}
{"method":"notifications/cancelled","params":{"requestId":9}}
{"method":"notifications/cancelled"}
"#;
        let ids = [1, 2, 4].map(Value::from).to_vec();
        assert_eq!(ids_and_begun(first, others), (ids, 3), "what is cancelled in time is not begun");
    }

    #[test]
    fn the_beginning_of_a_session_cannot_be_cancelled() {
        let cancel = br#"{"method":"notifications/cancelled","params":{"requestId":0}}
"#;
        let first = br#"{"id":0,"method":"initialize"}
"#;
        assert_eq!(ids_and_begun(first, cancel), (vec![0.into()], 1));
    }

    #[test]
    fn requests_have_answers_and_notifications_have_none() {
        let text = br#"{"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":1}}

{"jsonrpc":"2.0","method":"echo"}
{"jsonrpc":"2.0","id":7,"result":{}}
{"jsonrpc":"2.0","id":"x","method":"none"}"#;
        let answers = answers(text);
        assert_eq!(answers.len(), 2, "{answers:?}");
        assert_eq!(answers[0], json!({"jsonrpc": "2.0", "id": 1, "result": {"a": 1}}));
        assert_eq!((&answers[1]["id"], &answers[1]["error"]["code"]), (&"x".into(), &(-32601).into()));
    }

    #[test]
    fn a_batch_has_an_array_of_answers() {
        let text = br#"[{"id":1,"method":"echo"},{"method":"echo"},5]"#;
        let answers = answers(text);
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].as_array().map(Vec::len), Some(2));
        assert_eq!(answers[0][1]["error"]["code"], -32600);
    }

    #[test]
    fn what_is_no_request_is_refused_and_the_next_line_is_answered() {
        let next = br#"{"id":2,"method":"echo"}"#;
        let deep = [b"[".repeat(100_000), b"\n".to_vec()].concat();
        let long = [b"x".repeat(3 << 20), b"\n".to_vec()].concat();
        let long_id = format!("{}\n", json!({"id": "i".repeat(20_000), "method": "echo"}));
        let malformed: [&[u8]; 8] = [
            b"{\n",
            b"\xff\xfe\n",
            b"[]\n",
            b"3\n",
            br#"{"id":[1],"method":"echo"}
"#,
            &deep,
            &long,
            long_id.as_bytes(),
        ];
        for line in malformed {
            let answers = answers(&[line, next].concat());
            assert!(answers.len() == 2 && answers[0]["id"].is_null(), "{answers:?}");
            assert!(answers[0]["error"]["code"].as_i64().is_some_and(|code| code < -32000), "{answers:?}");
            assert_eq!(answers[1]["id"], 2);
        }
    }
}
