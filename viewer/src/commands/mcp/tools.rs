//! The tools: each is a command, and its arguments are options of it.

use serde_json::{Map, Value, json};

/// A tool that a client can call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tool {
    /// Its name.
    pub(super) name: &'static str,
    /// The command that answers.
    pub(super) command: &'static str,
    /// The question that it answers, and when to ask it.
    pub(super) about: &'static str,
    /// Its parameters; those that are files come first, in the order of the command.
    pub(super) parameters: &'static [Parameter],
}

/// A parameter of a tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    /// Its name: that of the option, with underscores.
    pub(super) name: &'static str,
    /// The kind of its values.
    pub(super) kind: Kind,
    /// Its description.
    pub(super) about: &'static str,
}

/// The kind of a parameter's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The recording that the command reads first. It may be left out if there is only one.
    Recording,
    /// A further recording that the command reads.
    Second,
    /// A recording that an option names.
    Baseline,
    /// Text.
    Text,
    /// Text that must be given.
    RequiredText,
    /// Texts, each of which is the option once.
    Texts,
    /// A number of 0 or more.
    Number,
    /// The same, with what is given if the client gives none.
    NumberOr(u64),
    /// Whether the option is given.
    Flag,
}

const fn parameter(name: &'static str, kind: Kind, about: &'static str) -> Parameter {
    Parameter { name, kind, about }
}

const AT: Parameter = parameter("at", Kind::Text, "Event number, `start` or `end`. Default: the peak.");
const FILE: Parameter = parameter("file", Kind::Recording, "The recording, as `summary` lists it.");
const DEVICE: Parameter =
    parameter("device", Kind::Number, "Device number. Default: the one that ran out of memory, else the highest peak.");
const METRIC: Parameter = parameter(
    "metric",
    Kind::Text,
    "Memory total: requested (default), allocated, active, reserved or device_used; see the vocabulary.",
);
const BY: Parameter = parameter(
    "by",
    Kind::Text,
    "Grouping keys, comma-separated: category, op, scope (module path) or scope:DEPTH, phase, step, stack, frame (line of \
     code), size, stream, pool, lifetime.",
);
const TOP: Parameter = parameter("top", Kind::Number, "Number of rows; the others are summed up. Default 20.");
const WHERE: Parameter = parameter(
    "where",
    Kind::Text,
    "Only blocks that match all conditions: 'category=activation size>=1MiB scope~layers.3', or a plain word. = != ~ \
     (contains) !~ for text; < <= > >= for numbers.",
);
const EACH: Parameter =
    parameter("each", Kind::Flag, "List each module; otherwise equal modules such as layers are one row.");

/// The tools.
pub(super) const TOOLS: [Tool; 12] = [
    Tool {
        name: "summary",
        command: "info",
        about: "What a recording contains: devices, peaks, failed requests, steps, and how far it can be trusted. Start \
                here. Without a file and with several, lists the recordings.",
        parameters: &[FILE, DEVICE],
    },
    Tool {
        name: "peak",
        command: "peak",
        about: "What is using GPU memory at the peak, or at another moment, by category, module, line of code or other keys.",
        parameters: &[FILE, DEVICE, METRIC, AT, BY, TOP, WHERE, EACH],
    },
    Tool {
        name: "blocks",
        command: "peak",
        about: "The largest single blocks that are live at the peak, or at another moment: size, category, operation, \
                module, line of code and the event that allocated each. For those after the last one, ask with \
                `where` and its size: 'size<4MiB'.",
        parameters: &[
            FILE,
            DEVICE,
            METRIC,
            AT,
            parameter("blocks", Kind::NumberOr(10), "Number of blocks, the largest first. Default 10."),
            WHERE,
        ],
    },
    Tool {
        name: "phases",
        command: "phases",
        about: "Memory by step and phase (forward, backward, optimizer, …): at the start, at the highest and at the end \
                of each, and what is using it then.",
        parameters: &[FILE, DEVICE, METRIC],
    },
    Tool {
        name: "explain",
        command: "explain",
        about: "Why the peak is as high as it is: its composition, the peak without each group, and advice with the bytes \
                that it saves.",
        parameters: &[FILE, DEVICE, METRIC, BY, TOP, WHERE, EACH],
    },
    Tool {
        name: "oom",
        command: "oom",
        about: "Why a request failed with an out-of-memory error, and what would have let it succeed.",
        parameters: &[FILE, DEVICE, parameter("event", Kind::Number, "Event number of the failed request."), TOP],
    },
    Tool {
        name: "growth",
        command: "growth",
        about: "Whether memory grows from step to step (a leak), by how much, and from which lines or modules.",
        parameters: &[
            FILE,
            DEVICE,
            METRIC,
            parameter("from_step", Kind::Number, "First step. Default: the second."),
            parameter("to_step", Kind::Number, "Last step. Default: the last whole one."),
            parameter(
                "between",
                Kind::Text,
                "steps (default), or idle: the moments between bursts of work, for servers, which have no steps.",
            ),
            BY,
            TOP,
            WHERE,
        ],
    },
    Tool {
        name: "diff",
        command: "diff",
        about: "What makes the difference in memory between two recordings, or between two steps of one.",
        parameters: &[
            parameter("file", Kind::Recording, "The recording A, as `summary` lists it."),
            parameter("other", Kind::Second, "The recording B. Without it, two steps of A are compared."),
            parameter("at", Kind::Text, "Moment: peak, end, step:N (the peak of step N) or step-end:N."),
            parameter("at_b", Kind::Text, "Moment of B. Default: as `at`; of one recording, the step after it."),
            METRIC,
            BY,
            TOP,
            parameter("blocks", Kind::Number, "Number of single blocks to list that only one side has."),
            DEVICE,
            WHERE,
            EACH,
        ],
    },
    Tool {
        name: "whatif",
        command: "whatif",
        about: "Replays a recording through the allocator with something changed: other settings, another device size, \
                blocks left out or smaller, modules recomputed. Gives the peaks before and after, and whether it fits.",
        parameters: &[
            FILE,
            DEVICE,
            parameter("alloc_conf", Kind::Text, "As in PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True."),
            parameter("capacity", Kind::Text, "Device memory, such as 24GiB: whether the run fits."),
            parameter("without", Kind::Texts, "Conditions as in `where`: leave out the blocks that match."),
            parameter("scale", Kind::Texts, "A share and conditions: 1/2:category=activation for half of the size."),
            parameter("checkpoint", Kind::Texts, "Module paths to recompute in backward: layers.*.mlp."),
            parameter("zero", Kind::Number, "1: shard the optimizer state over `ranks` (ZeRO stage 1)."),
            parameter("ranks", Kind::Number, "Number of ranks for `zero`."),
        ],
    },
    Tool {
        name: "plan",
        command: "plan",
        about: "The cheapest changes with which a training step fits a memory budget, each proven by a replay, with the \
                lines of code to paste. May take a minute.",
        parameters: &[
            FILE,
            parameter("budget", Kind::RequiredText, "Device memory, such as 24GiB."),
            parameter("reserve", Kind::Text, "Memory outside the allocator, such as 1GiB."),
            parameter(
                "allow",
                Kind::Texts,
                "Changes to allow although they alter the numerical results: 8bit (optimizer state), bf16, lora, \
                 freeze (the first blocks).",
            ),
            parameter(
                "forbid",
                Kind::Texts,
                "Changes to exclude because the program cannot make them: fused, in-backward, micro-batches, \
                 recompute, settings.",
            ),
            parameter("modules", Kind::Texts, "Modules that may be recomputed: layers.3, layers.*.mlp."),
        ],
    },
    Tool {
        name: "check",
        command: "check",
        about: "Checks a recording against limits, and names what exceeds one; give at least one limit.",
        parameters: &[
            FILE,
            parameter("baseline", Kind::Baseline, "Recording to compare with."),
            parameter("max_growth", Kind::Text, "Limit of the growth over the baseline: 5% or 200MiB."),
            parameter("max_peak", Kind::Text, "Limit of the peak, such as 5GiB."),
            parameter("max_reserved", Kind::Text, "Limit of the peak of reserved memory."),
            parameter("max", Kind::Texts, "Limits of categories: activation=2GiB."),
            parameter("max_phase", Kind::Texts, "Limits of phases: optimizer=5GiB."),
            parameter("max_step_growth", Kind::Text, "Limit of the growth per step: 0B allows no leak."),
            parameter("max_reserved_growth", Kind::Text, "Limit of the growth of reserved memory per step."),
            METRIC,
            DEVICE,
        ],
    },
    PICTURE,
];

/// The tool whose answer is a picture.
pub(super) const PICTURE: Tool = Tool {
    name: "picture",
    command: "render",
    about: "A picture (PNG) of a recording: its memory over time with the peak marked, or another view.",
    parameters: &[
        FILE,
        parameter("other", Kind::Second, "The recording B, for the view diff."),
        parameter("view", Kind::Text, "timeline (default), segments, flame, treemap, table, explain, plan or diff."),
        parameter(
            "by",
            Kind::Text,
            "Key of the colours, as in by elsewhere; scope is the first level of modules, stack the line of code.",
        ),
        parameter("from", Kind::Number, "First event to draw."),
        parameter("to", Kind::Number, "Last event to draw."),
        DEVICE,
        METRIC,
        WHERE,
    ],
};

impl Parameter {
    /// The option of the command.
    pub(super) fn option(&self) -> String {
        format!("--{}", self.name.replace('_', "-"))
    }

    fn schema(&self) -> Value {
        let about = self.about;
        match self.kind {
            Kind::Texts => json!({"type": "array", "items": {"type": "string"}, "description": about}),
            Kind::Number | Kind::NumberOr(_) => json!({"type": "integer", "minimum": 0, "description": about}),
            Kind::Flag => json!({"type": "boolean", "description": about}),
            _ => json!({"type": "string", "description": about}),
        }
    }
}

impl Tool {
    /// Returns the tool as clients list it.
    pub(super) fn described(&self) -> Value {
        let properties: Map<String, Value> =
            self.parameters.iter().map(|parameter| (parameter.name.to_owned(), parameter.schema())).collect();
        let is_required = |parameter: &&Parameter| parameter.kind == Kind::RequiredText;
        let required: Vec<&str> = self.parameters.iter().filter(is_required).map(|parameter| parameter.name).collect();
        json!({
            "name": self.name,
            "description": self.about,
            "inputSchema": {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            },
            "annotations": {"readOnlyHint": true, "destructiveHint": false, "openWorldHint": false},
        })
    }
}
