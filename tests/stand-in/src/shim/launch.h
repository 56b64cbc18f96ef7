// Launch: a kernel's entry, as the driver calls it, and the blocks of a grid one after another.
#pragma once

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
};

// One thread of the host runs kernels at a time: the driver sees to it.
static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static const int warpSize = 32;

namespace cpu {

// As `Declared` in programs.rs: a variable in shared memory.
struct Declared {
    void* place;
    uint64_t bytes;
};

// As `Launch` in programs.rs.
struct Launch {
    unsigned blocks[3];
    unsigned threads[3];
    uint64_t seed;
    char* shared;
    uint64_t shared_bytes;
    const Declared* declared;
    uint64_t declared_count;
    char* stacks;
    uint64_t stack_bytes;
    uint64_t guard_bytes;
    char* words;
    uint64_t words_bytes;
};

enum Outcome { DONE = 0, FAILED = 1, ILLEGAL_ADDRESS = 2 };

// As `Export` in programs.rs.
struct Export {
    int (*run)(void** arguments, const Launch* launch);
    unsigned count;
    const unsigned* sizes;
    const unsigned* alignments;
};

static const Launch* running;
static pthread_t runner;
static sigjmp_buf escape;
// Fresh shared memory is full of it: not a number in every type of fractions.
const int FRESH = 0xff;

// Ends the launch, from whatever stack, in words about the thread that it ends in.
[[noreturn]] inline void give_up(Outcome outcome, const char* words) {
    snprintf(running->words, running->words_bytes, "%s, in block (%u, %u, %u), thread (%u, %u, %u)", words, blockIdx.x,
             blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    siglongjmp(escape, outcome);
}

const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
const unsigned SIGNAL_COUNT = sizeof SIGNALS / sizeof *SIGNALS;
static struct sigaction before[SIGNAL_COUNT];

inline void restore_signals() {
    for (unsigned i = 0; i < SIGNAL_COUNT; i++) {
        sigaction(SIGNALS[i], &before[i], nullptr);
    }
}

static void on_signal(int signal, siginfo_t* info, void*) {
    if (!pthread_equal(pthread_self(), runner)) {
        // Another thread's own: it happens again, and then as if there were no kernel.
        restore_signals();
        return;
    }
    if (signal == SIGFPE) {
        give_up(FAILED, "divides a whole number by zero");
    }
    if (signal == SIGILL) {
        give_up(FAILED, "comes to where it says it cannot");
    }
    char* at = (char*)info->si_addr;
    uint64_t stacks = running->stack_bytes * 1024;
    char words[96];
    if (at >= running->stacks && at < running->stacks + stacks) {
        snprintf(words, sizeof words, "overflows a thread's stack of %llu bytes",
                 (unsigned long long)(running->stack_bytes - running->guard_bytes));
    } else {
        snprintf(words, sizeof words, "reads or writes at %p, where it has no memory", (void*)at);
    }
    give_up(ILLEGAL_ADDRESS, words);
}

// Runs `body`, from which `give_up` and faults come back.
template <class Body>
int guarded(const Launch* launch, Body body) {
    running = launch;
    runner = pthread_self();
    // A handler needs a stack beside the one that may be used up.
    static char spare[64 << 10];
    stack_t own = {}, kept = {};
    own.ss_sp = spare;
    own.ss_size = sizeof spare;
    sigaltstack(&own, &kept);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (unsigned i = 0; i < SIGNAL_COUNT; i++) {
        sigaction(SIGNALS[i], &action, &before[i]);
    }
    int outcome = sigsetjmp(escape, 1);
    if (outcome == DONE) {
        body();
    }
    restore_signals();
    sigaltstack(&kept, nullptr);
    return outcome;
}

// The numbers below `count`, each once: in their order for seed 0, else in one that the seed picks.
struct Order {
    uint64_t count, stride, start;

    Order(uint64_t count, uint64_t seed) : count(count), stride(1), start(0) {
        if (seed == 0 || count < 2) {
            return;
        }
        uint64_t mixed = (seed + count) * 0x9e3779b97f4a7c15ull;
        start = (mixed >> 20) % count;
        stride = 1 + (mixed >> 44) % 65521;
        while (common(stride, count) != 1) {
            stride++;
        }
    }
    uint64_t at(uint64_t place) const { return (start + place * stride) % count; }

    static uint64_t common(uint64_t a, uint64_t b) {
        while (b != 0) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        return a;
    }
};

inline void set_thread(unsigned thread) {
    threadIdx.x = thread % blockDim.x;
    threadIdx.y = thread / blockDim.x % blockDim.y;
    threadIdx.z = thread / blockDim.x / blockDim.y;
}

// Runs `block` for each block of the grid.
template <class Block>
void each_block(Block block) {
    const Launch& launch = *running;
    gridDim = {launch.blocks[0], launch.blocks[1], launch.blocks[2]};
    blockDim = {launch.threads[0], launch.threads[1], launch.threads[2]};
    Order order((uint64_t)gridDim.x * gridDim.y * gridDim.z, launch.seed);
    for (uint64_t place = 0; place < order.count; place++) {
        uint64_t number = order.at(place);
        blockIdx.x = number % gridDim.x;
        blockIdx.y = number / gridDim.x % gridDim.y;
        blockIdx.z = number / gridDim.x / gridDim.y;
        memset(launch.shared, FRESH, launch.shared_bytes);
        for (uint64_t i = 0; i < launch.declared_count; i++) {
            memset(launch.declared[i].place, FRESH, launch.declared[i].bytes);
        }
        // The compiler does not know what was written to just now.
        asm volatile("" ::: "memory");
        block();
    }
}

// Runs `body` as each thread of each block, one after another.
template <class Body>
void each_thread(Body body) {
    each_block([&] {
        Order order(blockDim.x * blockDim.y * blockDim.z, running->seed);
        for (unsigned place = 0; place < order.count; place++) {
            set_thread(order.at(place));
            // For whoever asks in which thread it went wrong, the numbers are there, also if the kernel reads them not.
            asm volatile("" ::: "memory");
            body();
        }
    });
}

}  // namespace cpu

// From here the driver counts to variables in shared memory, which have no names that it could ask for.
extern "C" __attribute__((visibility("default"))) char highwater_mark = 1;

#define DYNAMIC_SHARED(type, name) type* name = (type*)cpu::running->shared
