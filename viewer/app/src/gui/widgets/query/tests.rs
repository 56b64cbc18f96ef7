//! Tests that queries are answered, shown and discarded, and that a panic in one is handled.

use super::*;

#[test]
fn questions_asked_meanwhile_are_passed_over_and_none_is_asked_twice() {
    let (open, gate) = channel::<()>();
    let (gate, mut seen) = (Arc::new(Mutex::new(gate)), Vec::new());
    let mut query = Query::new("test-query", move |number: &u32, _: &Cancel| {
        // Holds the first question until all are asked.
        if seen.is_empty() {
            gate.lock().unwrap().recv().unwrap();
        }
        seen.push(*number);
        Some(seen.clone())
    });
    let ctx = Context::default();
    for number in [1, 2, 3, 4, 4] {
        query.ask(&ctx, &number);
    }
    assert!(query.is_busy() && !query.receive());
    open.send(()).unwrap();
    query.wait();
    assert!(!query.is_busy() && query.receive() && !query.receive(), "an answer is new once");
    let seen = query.current().unwrap();
    assert_eq!((query.answered(), seen.last()), (Some(&4), Some(&4)));
    assert!(seen.len() <= 2, "what was asked meanwhile is passed over: {seen:?}");
    query.ask(&ctx, &4);
    assert!(!query.is_busy(), "it was answered already");
    query.cancel();
    assert!(query.current().is_none() && query.answer().is_some(), "the answer stays");
    query.ask(&ctx, &4);
    query.wait();
    assert_eq!(query.take().map(|seen| seen.len() <= 3), Some(true), "it was asked again");
}

#[test]
fn a_question_that_is_no_longer_wanted_is_given_up() {
    let mut query = Query::new("test-query", |number: &u32, cancel: &Cancel| {
        // The first question waits until it is not wanted any more.
        while *number == 1 && !cancel.is_cancelled() {
            std::thread::yield_now();
        }
        (!cancel.is_cancelled()).then_some(*number)
    });
    let ctx = Context::default();
    assert!(!query.is_busy() && query.take().is_none());
    query.ask(&ctx, &1);
    query.ask(&ctx, &2);
    query.wait();
    assert!(!query.is_busy());
    assert_eq!((query.take(), query.take()), (Some(2), None), "an answer is taken once");
    query.ask(&ctx, &1);
    query.cancel();
    query.wait();
    assert!(!query.is_busy() && query.take().is_none());
}

#[test]
fn an_answer_to_an_earlier_question_is_shown_only_if_wanted() {
    for is_wanted in [true, false] {
        let (open, gate) = channel();
        let (begin, begun) = channel();
        let gate = Arc::new(Mutex::new(gate));
        let query = Query::new("test-query", move |number: &u32, _: &Cancel| {
            begin.send(*number).unwrap();
            gate.lock().unwrap().recv().unwrap();
            Some(*number)
        });
        let mut query = if is_wanted { query.showing_late() } else { query };
        let ctx = Context::default();
        query.ask(&ctx, &1);
        assert_eq!(begun.recv().unwrap(), 1);
        query.ask(&ctx, &2);
        open.send(()).unwrap();
        assert_eq!(begun.recv().unwrap(), 2, "the first is answered");
        assert_eq!((query.receive(), query.answer()), (is_wanted, is_wanted.then_some(&1)));
        assert!(query.is_busy());
        open.send(()).unwrap();
        query.wait();
        assert_eq!(query.current(), Some(&2));
    }
}

#[test]
fn a_failed_question_is_not_asked_again_until_it_is_cancelled() {
    let mut answers = 0;
    let mut query = Query::new("test-query", move |should_break: &bool, _: &Cancel| {
        answers += 1;
        assert!(!should_break, "as a test");
        Some(answers)
    });
    let ctx = Context::default();
    query.ask(&ctx, &true);
    query.wait();
    assert!(!query.is_busy() && query.failure().is_some_and(|why| why.contains("internal error")));
    query.ask(&ctx, &true);
    assert!(!query.is_busy(), "it would fail again");
    query.ask(&ctx, &false);
    query.wait();
    assert_eq!((query.answer(), query.failure()), (Some(&1), None), "the work begins anew");
    query.ask(&ctx, &true);
    query.wait();
    query.cancel();
    assert_eq!(query.failure(), None);
}

#[test]
fn answers_that_are_replaced_forgotten_or_about_something_else_are_discarded() {
    static DISCARDED: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    let work = |number: &u32, _: &Cancel| Some(*number);
    let mut query = Query::new("test-query", work).discarding(|number| DISCARDED.lock().unwrap().push(number));
    let ctx = Context::default();
    for number in 1..=3 {
        query.ask(&ctx, &number);
        query.wait();
    }
    query.keep_if(|number| *number == 3);
    assert_eq!(query.answer(), Some(&3));
    query.keep_if(|number| *number != 3);
    assert!(query.answer().is_none() && !query.receive(), "an answer that was dropped is not reported as new");
    query.ask(&ctx, &4);
    query.wait();
    query.forget();
    assert_eq!((*DISCARDED.lock().unwrap()).as_slice(), [1, 2, 3, 4]);
}
