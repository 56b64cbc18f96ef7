/*
 * Frames of known shapes, whatever the profile that the Rust code is built in: found through the stack pointer or
 * through the base register, and saving the base register in various places. FRAME is the size of one frame, in words;
 * builds that differ in it have the same code layout.
 */
typedef void (*callback)(void *);
typedef int (*hop)(const unsigned char *path, callback call, void *argument);

#define APART __attribute__((noinline))

/* The block counts as used, yet nothing is written to it: the words of former frames remain. */
static inline void keep(void *block) {
    __asm__ volatile("" : : "r"(block) : "memory");
}

APART int through(callback call, void *argument, int depth) {
    volatile long words[FRAME];
    words[depth % FRAME] = depth;
    if (depth == 0) {
        call(argument);
    } else {
        through(call, argument, depth - 1);
    }
    return (int)words[depth % FRAME];
}

extern hop const hops[];

/* The one place from which every hop is called: the path's first byte says which; 0 is its end. */
APART int go_on(const unsigned char *path, callback call, void *argument) {
    if (*path == 0) {
        call(argument);
        return 1;
    }
    return hops[*path - 1](path + 1, call, argument) + 1;
}

#define HOP(NAME, BLOCK, BEFORE)                                                           \
    APART static int NAME(const unsigned char *path, callback call, void *argument) {      \
        BLOCK;                                                                             \
        keep(block);                                                                       \
        BEFORE;                                                                            \
        int result = go_on(path, call, argument);                                          \
        keep(block);                                                                       \
        return result + 1;                                                                 \
    }

HOP(plain16, char block[16], )
HOP(plain32, char block[32], )
HOP(plain64, char block[64], )
HOP(plain128, char block[128], )
HOP(aligned1, char block[128] __attribute__((aligned(128))), )
HOP(aligned2, char block[256] __attribute__((aligned(128))), )

#if defined(__x86_64__)
#define CHANGES(...) __asm__ volatile("" : : : __VA_ARGS__)
#else
#define CHANGES(...)
#endif
HOP(saves1, char block[64], CHANGES("rbp"))
HOP(saves2, char block[56], CHANGES("rbp", "rbx"))
HOP(saves3, char block[48], CHANGES("rbp", "rbx", "r12"))

/* A frame whose size the compiler does not know. */
APART static int grows(const unsigned char *path, callback call, void *argument) {
    char *block = __builtin_alloca(16 * (path[0] + 1));
    keep(block);
    int result = go_on(path, call, argument);
    keep(block);
    return result + 1;
}

hop const hops[] = {plain16, plain32, plain64, plain128, aligned1, aligned2, saves1, saves2, saves3, grows};
