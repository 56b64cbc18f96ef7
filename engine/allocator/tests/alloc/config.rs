//! Tests that settings are parsed and printed as in PyTorch, and that errors name the key and the accepted values.

use expect_test::expect;
use highwater_allocator::{
    AccountingDriver, AllocConfig, CachingAllocator, Capacity, Driver, DriverError, DriverEvent, DriverKind,
};
use highwater_recorder::{DeviceId, StreamId};
use proptest::prelude::*;

/// Each text with what it reads as, or why it does not.
fn read(texts: &[&str]) -> String {
    let lines = texts.iter().map(|text| match text.parse::<AllocConfig>() {
        Ok(config) if config == AllocConfig::default() => format!("'{text}'\n  = the defaults\n"),
        Ok(config) => format!("'{text}'\n  = {config}\n"),
        Err(error) => format!("'{text}'\n  ! {error}\n"),
    });
    lines.collect()
}

#[test]
fn settings_read_as_in_pytorch_and_print_in_one_form() {
    let texts = [
        "",
        " ",
        "expandable_segments:True",
        "expandable_segments:False",
        "max_split_size_mb:20",
        "max_ split_size_mb : 3 0,",
        "max_split_size_mb:30,max_split_size_mb:40",
        "max_split_size_mb:128,large_segment_size_mb:128,max_non_split_rounding_mb:200",
        "large_segment_size_mb:11",
        "garbage_collection_threshold:0.80,per_process_memory_fraction:1.0",
        "per_process_memory_fraction:0",
        "roundup_power2_divisions:4",
        "roundup_power2_divisions:[]",
        "roundup_power2_divisions:[1:8]",
        "roundup_power2_divisions:[>:4]",
        "roundup_power2_divisions:[4:2,]",
        "roundup_power2_divisions:[64:8,256:4,1024:4,>:1]",
        "roundup_power2_divisions:[64:8,256:0,>:2],expandable_segments:True",
        "roundup_power2_divisions:[256:2,64:8,>:2]",
        "roundup_power2_divisions:[65536:2]",
        "roundup_power2_divisions:9223372036854775808",
        "backend:native,release_lock_on_cudamalloc:True,pinned_use_background_threads:True",
        "graph_capture_record_stream_reuse:False",
    ];
    expect![[r#"
        ''
          = the defaults
        ' '
          = the defaults
        'expandable_segments:True'
          = expandable_segments:True
        'expandable_segments:False'
          = the defaults
        'max_split_size_mb:20'
          = max_split_size_mb:20
        'max_ split_size_mb : 3 0,'
          = max_split_size_mb:30
        'max_split_size_mb:30,max_split_size_mb:40'
          = max_split_size_mb:40
        'max_split_size_mb:128,large_segment_size_mb:128,max_non_split_rounding_mb:200'
          = large_segment_size_mb:128,max_split_size_mb:128,max_non_split_rounding_mb:200
        'large_segment_size_mb:11'
          = large_segment_size_mb:11
        'garbage_collection_threshold:0.80,per_process_memory_fraction:1.0'
          = garbage_collection_threshold:0.8
        'per_process_memory_fraction:0'
          = per_process_memory_fraction:0
        'roundup_power2_divisions:4'
          = roundup_power2_divisions:4
        'roundup_power2_divisions:[]'
          = the defaults
        'roundup_power2_divisions:[1:8]'
          = roundup_power2_divisions:[1:8]
        'roundup_power2_divisions:[>:4]'
          = roundup_power2_divisions:[1:0,>:4]
        'roundup_power2_divisions:[4:2,]'
          = roundup_power2_divisions:[4:2]
        'roundup_power2_divisions:[64:8,256:4,1024:4,>:1]'
          = roundup_power2_divisions:[64:8,256:4,1024:4,>:1]
        'roundup_power2_divisions:[64:8,256:0,>:2],expandable_segments:True'
          = roundup_power2_divisions:[64:8,256:0,>:2],expandable_segments:True
        'roundup_power2_divisions:[256:2,64:8,>:2]'
          = roundup_power2_divisions:[32:2,64:8,>:2]
        'roundup_power2_divisions:[65536:2]'
          = roundup_power2_divisions:2
        'roundup_power2_divisions:9223372036854775808'
          = roundup_power2_divisions:9223372036854775808
        'backend:native,release_lock_on_cudamalloc:True,pinned_use_background_threads:True'
          = the defaults
        'graph_capture_record_stream_reuse:False'
          = the defaults
    "#]]
    .assert_eq(&read(&texts));
}

#[test]
fn what_is_wrong_with_settings_is_stated_with_the_key_and_what_is_allowed() {
    let texts = [
        "expandable:True",
        "expandable_segments:true",
        "expandable_segments",
        "expandable_segments:",
        "max_split_size_mb=30",
        "max_split_size_mb:19",
        "max_split_size_mb:-5",
        "max_split_size_mb:20x",
        "max_split_size_mb:99999999999999999",
        "large_segment_size_mb:17592186044415,per_process_memory_fraction:0.5",
        "max_split_size_mb:64,large_segment_size_mb:128",
        "max_non_split_rounding_mb:19",
        "large_segment_size_mb:10",
        "garbage_collection_threshold:1",
        "garbage_collection_threshold:0",
        "garbage_collection_threshold:nan",
        "per_process_memory_fraction:1.5",
        "roundup_power2_divisions:0",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:[4:3]",
        "roundup_power2_divisions:[3:2]",
        "roundup_power2_divisions:[0:2]",
        "roundup_power2_divisions:[4:2",
        "roundup_power2_divisions:[4]",
        "backend:cudaMallocAsync",
        "graph_capture_record_stream_reuse:True",
        "max_split_size_mb:30,,",
        ",max_split_size_mb:30",
        "max_split_size_mb:30:40",
    ];
    expect![[r#"
        'expandable:True'
          ! allocator settings: unknown key 'expandable' (did you mean 'expandable_segments'?); the keys are large_segment_size_mb, max_split_size_mb, max_non_split_rounding_mb, roundup_power2_divisions, garbage_collection_threshold, per_process_memory_fraction, expandable_segments
        'expandable_segments:true'
          ! allocator settings: invalid value 'true' for expandable_segments; expected 'True' or 'False'
        'expandable_segments'
          ! allocator settings: expected ':' after 'expandable_segments', found the end; write key:value,key:[a:b,c:d]
        'expandable_segments:'
          ! allocator settings: invalid value '' for expandable_segments; expected 'True' or 'False'
        'max_split_size_mb=30'
          ! allocator settings: unknown key 'max_split_size_mb=30' (did you mean 'max_split_size_mb'?); the keys are large_segment_size_mb, max_split_size_mb, max_non_split_rounding_mb, roundup_power2_divisions, garbage_collection_threshold, per_process_memory_fraction, expandable_segments
        'max_split_size_mb:19'
          ! allocator settings: invalid value '19' for max_split_size_mb; expected a whole number of MiB from 20 (large_segment_size_mb) upwards
        'max_split_size_mb:-5'
          ! allocator settings: invalid value '-5' for max_split_size_mb; expected a whole number of MiB, at most 1099511627776
        'max_split_size_mb:20x'
          ! allocator settings: invalid value '20x' for max_split_size_mb; expected a whole number of MiB, at most 1099511627776
        'max_split_size_mb:99999999999999999'
          ! allocator settings: invalid value '99999999999999999' for max_split_size_mb; expected a whole number of MiB, at most 1099511627776
        'large_segment_size_mb:17592186044415,per_process_memory_fraction:0.5'
          ! allocator settings: invalid value '17592186044415' for large_segment_size_mb; expected a whole number of MiB, at most 1099511627776
        'max_split_size_mb:64,large_segment_size_mb:128'
          ! allocator settings: invalid value '64' for max_split_size_mb; expected a whole number of MiB from 128 (large_segment_size_mb) upwards
        'max_non_split_rounding_mb:19'
          ! allocator settings: invalid value '19' for max_non_split_rounding_mb; expected a whole number of MiB from 20 (large_segment_size_mb) upwards
        'large_segment_size_mb:10'
          ! allocator settings: invalid value '10' for large_segment_size_mb; expected a whole number of MiB above 10
        'garbage_collection_threshold:1'
          ! allocator settings: invalid value '1' for garbage_collection_threshold; expected a number between 0 and 1, both excluded
        'garbage_collection_threshold:0'
          ! allocator settings: invalid value '0' for garbage_collection_threshold; expected a number between 0 and 1, both excluded
        'garbage_collection_threshold:nan'
          ! allocator settings: invalid value 'nan' for garbage_collection_threshold; expected a number between 0 and 1, both excluded
        'per_process_memory_fraction:1.5'
          ! allocator settings: invalid value '1.5' for per_process_memory_fraction; expected a number from 0 to 1
        'roundup_power2_divisions:0'
          ! allocator settings: invalid value '0' for roundup_power2_divisions; expected a power of two, or a list [MiB:divisions,…]
        'roundup_power2_divisions:3'
          ! allocator settings: invalid value '3' for roundup_power2_divisions; expected a power of two, or a list [MiB:divisions,…]
        'roundup_power2_divisions:[4:3]'
          ! allocator settings: invalid value '4:3' for roundup_power2_divisions; expected 0 or a power of two after the colon
        'roundup_power2_divisions:[3:2]'
          ! allocator settings: invalid value '3:2' for roundup_power2_divisions; expected a power of two, in MiB, or '>' before the colon
        'roundup_power2_divisions:[0:2]'
          ! allocator settings: invalid value '0:2' for roundup_power2_divisions; expected a power of two, in MiB, or '>' before the colon
        'roundup_power2_divisions:[4:2'
          ! allocator settings: expected ',' after 'roundup_power2_divisions:[4:2', found the end; write key:value,key:[a:b,c:d]
        'roundup_power2_divisions:[4]'
          ! allocator settings: expected ':' after 'roundup_power2_divisions:[4', found ']'; write key:value,key:[a:b,c:d]
        'backend:cudaMallocAsync'
          ! allocator settings: invalid value 'cudaMallocAsync' for backend; expected 'native', the caching allocator
        'graph_capture_record_stream_reuse:True'
          ! allocator settings: invalid value 'True' for graph_capture_record_stream_reuse; expected 'False': CUDA graphs are not supported, and nothing is captured
        'max_split_size_mb:30,,'
          ! allocator settings: unknown key ''; the keys are large_segment_size_mb, max_split_size_mb, max_non_split_rounding_mb, roundup_power2_divisions, garbage_collection_threshold, per_process_memory_fraction, expandable_segments
        ',max_split_size_mb:30'
          ! allocator settings: unknown key ''; the keys are large_segment_size_mb, max_split_size_mb, max_non_split_rounding_mb, roundup_power2_divisions, garbage_collection_threshold, per_process_memory_fraction, expandable_segments
        'max_split_size_mb:30:40'
          ! allocator settings: expected ',' after 'max_split_size_mb:30', found ':'; write key:value,key:[a:b,c:d]
    "#]].assert_eq(&read(&texts));
}

#[test]
fn the_default_limit_on_unsplit_rounding_follows_the_segment_size() {
    let bytes = |text: &str| text.parse::<AllocConfig>().expect("valid settings").max_non_split_rounding_bytes() >> 20;
    assert_eq!(bytes(""), 20);
    assert_eq!(bytes("large_segment_size_mb:64"), 64);
    assert_eq!(bytes("large_segment_size_mb:64,max_non_split_rounding_mb:80"), 80);
}

#[test]
fn settings_can_be_put_over_others() {
    let config: AllocConfig = "max_split_size_mb:64,expandable_segments:True".parse().expect("valid settings");
    let config = config.with("max_split_size_mb:32").expect("valid settings");
    assert_eq!(config.to_string(), "max_split_size_mb:32,expandable_segments:True");
    assert!(config.with("large_segment_size_mb:64").is_err(), "limits hold across both");
}

/// Host memory, which cannot be mapped by pages.
struct WithoutPages(AccountingDriver);

impl Driver for WithoutPages {
    fn kind(&self) -> DriverKind {
        DriverKind::Cpu
    }

    fn name(&self) -> String {
        "host memory".to_owned()
    }

    fn capacity(&self) -> Result<Capacity, DriverError> {
        self.0.capacity()
    }

    fn reserve(&self, bytes: u64) -> Result<u64, DriverError> {
        self.0.reserve(bytes)
    }

    fn release(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        self.0.release(address, bytes)
    }

    fn record_event(&self, stream: StreamId) -> Result<DriverEvent, DriverError> {
        self.0.record_event(stream)
    }

    fn query(&self, event: DriverEvent) -> Result<bool, DriverError> {
        self.0.query(event)
    }

    fn wait(&self, event: DriverEvent) -> Result<(), DriverError> {
        self.0.wait(event)
    }

    fn synchronize(&self, stream: StreamId) -> Result<(), DriverError> {
        self.0.synchronize(stream)
    }
}

#[test]
fn expandable_segments_are_refused_where_memory_cannot_be_mapped() {
    let config: AllocConfig = "expandable_segments:True".parse().expect("valid settings");
    assert_eq!(config.check_driver(&AccountingDriver::new(1 << 30)), Ok(()));
    let host = WithoutPages(AccountingDriver::new(1 << 30));
    let refusal = config.check_driver(&host).expect_err("host memory is not mapped by pages").to_string();
    assert!(refusal.contains("expandable_segments") && refusal.contains("cpu"), "{refusal}");
    let allocator = CachingAllocator::new(Box::new(host), DeviceId(0), config);
    let error = allocator.malloc(1, StreamId(0)).expect_err("the settings cannot be followed");
    assert_eq!(error.to_string(), refusal);

    let odd: AllocConfig = "expandable_segments:True,large_segment_size_mb:21".parse().expect("valid settings");
    let refusal =
        odd.check_driver(&AccountingDriver::new(1 << 30)).expect_err("21 MiB are not whole pages").to_string();
    assert!(refusal.contains("large_segment_size_mb") && refusal.contains("21"), "{refusal}");
}

fn divisions() -> impl Strategy<Value = String> {
    let number = prop_oneof![Just(0_u64), (0..6_u32).prop_map(|power| 1 << power)];
    let entries = prop::collection::vec((0..16_u32, number.clone()), 1..6);
    (entries, prop::option::of(number)).prop_map(|(entries, rest)| {
        let mut parts: Vec<String> =
            entries.iter().map(|(power, number)| format!("{}:{number}", 1_u64 << power)).collect();
        parts.extend(rest.map(|number| format!(">:{number}")));
        format!("roundup_power2_divisions:[{}]", parts.join(","))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printed_settings_read_back_as_themselves(
        divisions in divisions(),
        split in prop::option::of(20..4000_u64),
        threshold in prop::option::of(0.001..0.999_f64),
        fraction in 0.0..1.0_f64,
    ) {
        let mut parts = vec![divisions, format!("per_process_memory_fraction:{fraction}")];
        parts.extend(split.map(|mib| format!("max_split_size_mb:{mib}")));
        parts.extend(threshold.map(|share| format!("garbage_collection_threshold:{share}")));
        let config: AllocConfig = parts.join(",").parse().expect("valid settings");
        let again: AllocConfig = config.to_string().parse().expect("what was printed is valid");
        prop_assert_eq!(again, config);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[a-z_0-9:,\\[\\]> .-]{0,60}|(max_split_size_mb|roundup_power2_divisions)[:\\[\\],0-9>]{0,20}") {
        let _ = text.parse::<AllocConfig>();
    }
}
