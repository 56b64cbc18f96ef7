// Fibres: the threads of a block, each on a stack of its own, so that they can wait for one another.
//
// They take turns in a fixed order: each warp goes on until all its lanes wait for other warps. What one does between two
// barriers thus happens before what the next does; HIGHWATER_STAND_IN_SEED picks another order.
#pragma once

namespace cpu {

const unsigned MOST_THREADS = 1024;
const unsigned WARP_LANES = 32;

// What a thread waits for. Lanes of a warp meet if they wait for the same.
enum Wait { NOTHING, ENDED, BLOCK, WARP, SHUFFLE, VOTE, MATCH };

struct Fibre {
    void* stack;
    uint3 place;
    Wait wait;
    // Lanes that it waits for.
    unsigned mask;
    uint64_t value;
};

static Fibre fibres[MOST_THREADS];
static unsigned fibre_count;
static unsigned current;
// Whether threads are fibres at all.
static bool can_wait;
static void* scheduler;
// What each lane of each warp gave when its lanes last met, and which lanes those were.
static uint64_t met_values[MOST_THREADS];
static unsigned met_lanes[MOST_THREADS];
// Of the threads that last met in the block, how many gave something other than 0.
static unsigned block_votes, block_met;

static void (*fibre_body)(void*);
static void* fibre_argument;

#if defined(__x86_64__)

// Keeps on the stack where to go on and the frame; the compiler keeps whatever else it needs, below which 128 bytes may
// be in use that nobody reserved. Without a call, processors still guess where the caller's own return goes.
inline void switch_to(void** from, void* to) {
    asm volatile(R"(
        leaq -128(%%rsp), %%rsp
        pushq %%rbp
        leaq 1f(%%rip), %%rax
        pushq %%rax
        movq %%rsp, (%%rdi)
        movq %%rsi, %%rsp
        popq %%rax
        jmpq *%%rax
    1:
        popq %%rbp
        leaq 128(%%rsp), %%rsp
    )"
                 : "+D"(from), "+S"(to)
                 :
                 : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1",
                   "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",
                   "xmm14", "xmm15", "cc", "memory");
}

// A stack on which `start` begins when it is switched to.
inline void* new_stack(unsigned, char*, char* high, void (*start)()) {
    void** top = (void**)((uintptr_t)high & ~(uintptr_t)15);
    *--top = nullptr;
    *--top = (void*)start;
    return top;
}

#else

// Of each thread, and of the scheduler.
static ucontext_t contexts[MOST_THREADS + 1];

inline void switch_to(void** from, void* to) {
    ucontext_t* own = &contexts[from == &scheduler ? MOST_THREADS : current];
    *from = own;
    swapcontext(own, (ucontext_t*)to);
}

inline void* new_stack(unsigned thread, char* low, char* high, void (*start)()) {
    ucontext_t* own = &contexts[thread];
    getcontext(own);
    own->uc_stack.ss_sp = low;
    own->uc_stack.ss_size = high - low;
    own->uc_link = nullptr;
    makecontext(own, start, 0);
    return own;
}

#endif

inline void yield() {
    Fibre& own = fibres[current];
    switch_to(&own.stack, scheduler);
}

static void start_fibre() {
    fibre_body(fibre_argument);
    fibres[current].wait = ENDED;
    yield();
    __builtin_trap();
}

// Waits until all for which this thread waits wait as well.
inline void meet(Wait wait, unsigned mask, uint64_t value) {
    if (!can_wait) {
        give_up(FAILED, "waits for other threads, although it is exported by EXPORT_PLAIN");
    }
    Fibre& own = fibres[current];
    if (wait != BLOCK && (mask >> current % WARP_LANES & 1) == 0) {
        give_up(FAILED, "is no lane of the mask that it waits with");
    }
    own.wait = wait;
    own.mask = mask;
    own.value = value;
    yield();
}

inline void resume(unsigned thread) {
    current = thread;
    threadIdx = fibres[thread].place;
    switch_to(&scheduler, fibres[thread].stack);
}

// Lets lanes of a warp go that all wait for one another; whether there were any.
inline bool release_lanes(unsigned first, unsigned lanes) {
    bool released = false;
    unsigned waiting = 0, ended = 0;
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        Wait wait = lane < lanes ? fibres[first + lane].wait : ENDED;
        waiting |= (unsigned)(wait > BLOCK) << lane;
        ended |= (unsigned)(wait == ENDED) << lane;
    }
    while (waiting != 0) {
        const Fibre& leader = fibres[first + __builtin_ctz(waiting)];
        Wait wait = leader.wait;
        unsigned mask = leader.mask, alike = 0;
        for (unsigned lane = 0; lane < lanes; lane++) {
            const Fibre& other = fibres[first + lane];
            alike |= (unsigned)(other.wait == wait && other.mask == mask) << lane;
        }
        waiting &= ~alike;
        // Lanes that have ended are not waited for.
        if ((mask & ~ended & ~alike) != 0) {
            continue;
        }
        for (unsigned lane = 0; lane < lanes; lane++) {
            if (alike >> lane & 1) {
                Fibre& one = fibres[first + lane];
                met_values[first + lane] = one.value;
                met_lanes[first + lane] = alike;
                one.wait = NOTHING;
            }
        }
        released = true;
    }
    return released;
}

// Lets all go if all wait for the block; whether they did.
inline bool release_block() {
    unsigned votes = 0, met = 0;
    for (unsigned thread = 0; thread < fibre_count; thread++) {
        if (fibres[thread].wait == BLOCK) {
            met++;
            votes += fibres[thread].value != 0;
        } else if (fibres[thread].wait != ENDED) {
            return false;
        }
    }
    for (unsigned thread = 0; thread < fibre_count; thread++) {
        if (fibres[thread].wait == BLOCK) {
            fibres[thread].wait = NOTHING;
        }
    }
    block_votes = votes;
    block_met = met;
    return met > 0;
}

[[noreturn]] inline void give_up_waiting() {
    const char* names[] = {"", "", "__syncthreads", "__syncwarp", "a shuffle", "a vote", "a match"};
    unsigned one = 0;
    while (fibres[one].wait == ENDED) {
        one++;
    }
    unsigned other = one;
    while (other + 1 < fibre_count && (fibres[other].wait == ENDED || (fibres[other].wait == fibres[one].wait && fibres[other].mask == fibres[one].mask))) {
        other++;
    }
    char words[200];
    snprintf(words, sizeof words,
             "waits for ever: thread %u at %s with lanes %08x, thread %u at %s with lanes %08x, counted along x", one,
             names[fibres[one].wait], fibres[one].mask, other, names[fibres[other].wait], fibres[other].mask);
    set_thread(one);
    give_up(FAILED, words);
}

// Runs all threads of a block to their ends.
inline void run_block() {
    const Launch& launch = *running;
    for (unsigned thread = 0; thread < fibre_count; thread++) {
        char* low = launch.stacks + thread * launch.stack_bytes + launch.guard_bytes;
        // Stacks begin at different places of their pages, so that they share the processor's cache.
        char* high = launch.stacks + (thread + 1) * launch.stack_bytes - thread % 32 * 128;
        set_thread(thread);
        fibres[thread].place = threadIdx;
        fibres[thread].wait = NOTHING;
        fibres[thread].stack = new_stack(thread, low, high, start_fibre);
    }
    unsigned warps = (fibre_count + WARP_LANES - 1) / WARP_LANES;
    Order warp_order(warps, launch.seed);
    do {
        for (unsigned place = 0; place < warps; place++) {
            unsigned first = warp_order.at(place) * WARP_LANES;
            unsigned lanes = fibre_count - first < WARP_LANES ? fibre_count - first : WARP_LANES;
            Order lane_order(lanes, launch.seed);
            do {
                for (unsigned lane = 0; lane < lanes; lane++) {
                    unsigned thread = first + lane_order.at(lane);
                    if (fibres[thread].wait == NOTHING) {
                        resume(thread);
                    }
                }
            } while (release_lanes(first, lanes));
        }
    } while (release_block());
    for (unsigned thread = 0; thread < fibre_count; thread++) {
        if (fibres[thread].wait != ENDED) {
            give_up_waiting();
        }
    }
}

template <class Body>
void each_fibre(Body body) {
    each_block([&] {
        fibre_count = blockDim.x * blockDim.y * blockDim.z;
        fibre_body = [](void* argument) { (*(Body*)argument)(); };
        fibre_argument = (void*)&body;
        run_block();
    });
}

template <auto kernel>
struct Kernel;

// A kernel with its parameters' types.
template <class... Parameters, void (*kernel)(Parameters...)>
struct Kernel<kernel> {
    static constexpr unsigned sizes[] = {sizeof(Parameters)..., 0};
    static constexpr unsigned alignments[] = {alignof(Parameters)..., 0};

    template <size_t... places>
    static inline void call(void** arguments, std::index_sequence<places...>) {
        kernel(*(Parameters*)arguments[places]...);
    }
    static inline void call(void** arguments) { call(arguments, std::index_sequence_for<Parameters...>()); }

    static int run_plain(void** arguments, const Launch* launch) {
        can_wait = false;
        return guarded(launch, [&] { each_thread([&] { call(arguments); }); });
    }
    static int run(void** arguments, const Launch* launch) {
        can_wait = true;
        return guarded(launch, [&] { each_fibre([&] { call(arguments); }); });
    }
    static constexpr Export exported(int (*run)(void**, const Launch*)) {
        return {run, sizeof...(Parameters), sizes, alignments};
    }
};

}  // namespace cpu

#define KERNEL static
#define EXPORT_AS(name, run)                                                                 \
    extern "C" __attribute__((visibility("default"))) const cpu::Export highwater_export_##name = \
        cpu::Kernel<&name>::exported(&cpu::Kernel<&name>::run);
#define EXPORT(name) EXPORT_AS(name, run)
#define EXPORT_PLAIN(name) EXPORT_AS(name, run_plain)

inline void __syncthreads() { cpu::meet(cpu::BLOCK, ~0u, 0); }
inline int __syncthreads_count(int is_set) {
    cpu::meet(cpu::BLOCK, ~0u, is_set != 0);
    return (int)cpu::block_votes;
}
inline int __syncthreads_or(int is_set) { return __syncthreads_count(is_set) > 0; }
inline int __syncthreads_and(int is_set) {
    int votes = __syncthreads_count(is_set);
    return votes == (int)cpu::block_met;
}
// One thread runs at a time, and sees what all before it wrote.
inline void __threadfence_block() {}
inline void __threadfence() {}
inline void __threadfence_system() {}
