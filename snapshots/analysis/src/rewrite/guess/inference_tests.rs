//! Tests of guessing on recordings of inference: vLLM, SGLang and transformers.

use super::tests::{FORWARD, MAIN, categories, training};
use super::{Rules, guess};
use highwater_snapshots::Phase;
use highwater_snapshots::ids::EventId;
use highwater_snapshots::trace::Annotation;

#[test]
fn caches_of_keys_and_values_are_buffers_whatever_allocates_them() {
    let init = "__init__@/site/vllm/engine/llm_engine.py < __init__@/home/me/serve.py < main@t.py";
    let caches = [
        format!("_allocate_kv_cache_tensors@/site/vllm/v1/worker/gpu_model_runner.py < {init}"),
        format!("_allocate_kv_cache@/site/vllm/worker/cache_engine.py < {init}"),
        "_create_buffers@/site/sglang/srt/mem_cache/memory_pool.py < __init__@/site/sglang/srt/model.py".to_owned(),
        "__init__@/site/transformers/cache_utils.py < generate@/site/transformers/generation/utils.py".to_owned(),
        format!("update@/site/transformers/cache_utils.py < {FORWARD}"),
    ];
    for cache in caches {
        let lines = format!("alloc kv 5000 < {cache}\nalloc h 5 < F\nfree h < F\nalloc h2 5 < F\nfree h2 < F\n");
        assert_eq!(categories(&lines)[..2], ["buffer", "temporary"], "{cache}");
    }
    let lines = format!(
        "alloc x 5 < F\nalloc kv 5000 < update@/site/transformers/cache_utils.py < {FORWARD}\nalloc g 5\nfree kv\n"
    );
    assert_eq!(categories(&lines)[1], "activation", "training keeps them for backward");
}

#[test]
fn an_inference_engine_profiles_captures_and_serves_without_activations() {
    let runner = "/site/vllm/v1/worker/gpu_model_runner.py";
    let module = "forward@/site/vllm/model_executor/models/llama.py < _call_impl@/site/torch/nn/modules/module.py";
    let profiled = format!("{module} < _dummy_run@{runner} < profile_run@{runner} < {MAIN}");
    let captured = format!("{module} < _dummy_run@{runner} < capture_model@{runner} < {MAIN}");
    let served = format!("{module} < execute_model@{runner} < {MAIN}");
    let weights = format!("create_weights@/site/vllm/model_executor/layers/linear.py < load_model@{runner} < {MAIN}");
    let cache = format!("_allocate_kv_cache_tensors@{runner} < initialize_kv_cache@{runner} < {MAIN}");
    let lines = format!(
        "alloc w 900 < {weights}\nalloc p 70 < {profiled}\nalloc logits 80 < {profiled}\nfree p\nfree logits\n\
         alloc kv 5000 < {cache}\nalloc g 60 < {captured}\nalloc static 61 < {captured}\nfree g\n\
         alloc h 50 < {served}\nfree h\nalloc sampled 5 < {served}\nalloc own 3 < {MAIN}\nfree sampled\n"
    );
    let trace = guess(training(&lines), &Rules::default());
    let found: Vec<&str> = trace.blocks.category.iter().map(|category| category.name()).collect();
    let expected =
        ["parameter", "temporary", "temporary", "buffer", "temporary", "unknown", "temporary", "unknown", "unknown"];
    assert_eq!(found, expected, "what a graph or the engine keeps is no activation");
    let named = |wanted: &str| {
        let is_named = |one: &&Annotation| trace.tables.string(one.name) == wanted && one.is_guessed;
        trace.annotations.iter().filter(is_named).map(|one| (one.first.0, one.end.0)).collect::<Vec<_>>()
    };
    assert_eq!((named("profiling run"), named("graph capture")), (vec![(1, 3)], vec![(8, 10)]));
    let at = |event: u32| trace.spans.at(EventId(event)).map(|span| span.phase);
    assert_eq!([at(2), at(9), at(12)], [Some(Phase::Eval), Some(Phase::Eval), Some(Phase::Eval)]);
}

#[test]
fn what_generate_computes_between_training_steps_is_evaluation() {
    let sampled = format!("{FORWARD} < generate@/site/transformers/generation/utils.py < {MAIN}");
    let lines = format!(
        "alloc w 100 < S\nalloc s 40 < {sampled}\nfree s\nalloc kept 41 < {sampled}\n\
         alloc h 50 < F\nalloc g 9\nfree h\nalloc m 6 < A\nfree m\nfree g\n"
    );
    assert_eq!(categories(&lines)[1..4], ["temporary", "unknown", "activation"]);
}
