// A program that never heard of Highwater: it obtains and frees memory by the CUDA driver, and prints what it did.
//
// It gets at the driver in one of three ways: linked with it (-DLINKED), by dlsym (-DLOOKED_UP), or by the driver's own
// cuGetProcAddress (-DASKED), as CUDA's runtime does.
//
// + CALL DEVICE ADDRESS BYTES STREAM   memory begins
// - CALL DEVICE ADDRESS                it ends
// ! CALL DEVICE BYTES                  a call failed for want of memory
// An address of "-" is none of the program's: memory that is mapped nowhere, and arrays.

#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

using u64 = uint64_t;
using usize = size_t;

struct Location { int kind, id; };
struct Properties { int kind, handles; Location location; void *rest[4]; };
struct Array { usize width, height; unsigned format, channels; };
struct Array3d { usize width, height, depth; unsigned format, channels, flags; };

// Each function: its name in the library, its short name, and its arguments.
#define FUNCTIONS(F) \
  F(cuInit, "cuInit", (unsigned)) \
  F(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (u64 *, int)) \
  F(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", (int)) \
  F(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", (int)) \
  F(cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", (u64 *, int)) \
  F(cuCtxSetCurrent, "cuCtxSetCurrent", (u64)) \
  F(cuStreamCreate, "cuStreamCreate", (u64 *, unsigned)) \
  F(cuStreamBeginCapture_v2, "cuStreamBeginCapture", (u64, int)) \
  F(cuStreamEndCapture, "cuStreamEndCapture", (u64, u64 *)) \
  F(cuMemAlloc_v2, "cuMemAlloc", (u64 *, usize)) \
  F(cuMemAllocPitch_v2, "cuMemAllocPitch", (u64 *, usize *, usize, usize, unsigned)) \
  F(cuMemAllocManaged, "cuMemAllocManaged", (u64 *, usize, unsigned)) \
  F(cuMemAllocAsync, "cuMemAllocAsync", (u64 *, usize, u64)) \
  F(cuMemAllocAsync_ptsz, "cuMemAllocAsync", (u64 *, usize, u64)) \
  F(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", (u64 *, usize, u64, u64)) \
  F(cuMemFree_v2, "cuMemFree", (u64)) \
  F(cuMemFreeAsync, "cuMemFreeAsync", (u64, u64)) \
  F(cuMemFreeAsync_ptsz, "cuMemFreeAsync", (u64, u64)) \
  F(cuMemAllocHost_v2, "cuMemAllocHost", (void **, usize)) \
  F(cuMemHostAlloc, "cuMemHostAlloc", (void **, usize, unsigned)) \
  F(cuMemFreeHost, "cuMemFreeHost", (void *)) \
  F(cuMemAddressReserve, "cuMemAddressReserve", (u64 *, usize, usize, u64, u64)) \
  F(cuMemAddressFree, "cuMemAddressFree", (u64, usize)) \
  F(cuMemCreate, "cuMemCreate", (u64 *, usize, const Properties *, u64)) \
  F(cuMemRelease, "cuMemRelease", (u64)) \
  F(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", (u64 *, void *)) \
  F(cuMemMap, "cuMemMap", (u64, usize, usize, u64, u64)) \
  F(cuMemUnmap, "cuMemUnmap", (u64, usize)) \
  F(cuArrayCreate_v2, "cuArrayCreate", (u64 *, const Array *)) \
  F(cuArray3DCreate_v2, "cuArray3DCreate", (u64 *, const Array3d *)) \
  F(cuArrayDestroy, "cuArrayDestroy", (u64)) \
  F(cuMipmappedArrayCreate, "cuMipmappedArrayCreate", (u64 *, const Array3d *, unsigned)) \
  F(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", (u64))

#ifdef LINKED
#define DECLARE(NAME, SHORT, ARGUMENTS) extern "C" int NAME ARGUMENTS;
FUNCTIONS(DECLARE)
static void meet() {}
#else
#define DECLARE(NAME, SHORT, ARGUMENTS) static int(*NAME) ARGUMENTS;
FUNCTIONS(DECLARE)
static void *look_up(void *library, const char *name, const char *shorter) {
#ifdef ASKED
  static int (*ask)(const char *, void **, int, u64, int *);
  if (!ask) {
    // As the runtime does: the function that finds functions finds itself first.
    auto first = reinterpret_cast<decltype(ask)>(dlsym(library, "cuGetProcAddress_v2"));
    if (first("cuGetProcAddress", reinterpret_cast<void **>(&ask), 12040, 0, nullptr)) return nullptr;
  }
  void *found = nullptr;
  bool is_per_thread = strstr(name, "_ptsz") != nullptr;
  return ask(shorter, &found, 12040, is_per_thread ? 2 : 0, nullptr) ? nullptr : found;
#else
  (void)shorter;
  return dlsym(library, name);
#endif
}
static void meet() {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) { fprintf(stderr, "%s\n", dlerror()); exit(3); }
#define FIND(NAME, SHORT, ARGUMENTS) \
  NAME = reinterpret_cast<int(*) ARGUMENTS>(look_up(library, #NAME, SHORT)); \
  if (!NAME) { fprintf(stderr, "no %s\n", #NAME); exit(3); }
  FUNCTIONS(FIND)
}
#endif

static void must(int answer, const char *what) {
  if (answer) { fprintf(stderr, "%s answers %d\n", what, answer); exit(4); }
}
#define MUST(CALL) must(CALL, #CALL)

static const u64 MIB = 1 << 20;
static const int HOST = 255;

static std::string place(u64 address) {
  char text[32];
  snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return address ? text : "-";
}
static void begins(const char *call, int device, u64 address, u64 bytes, int stream = 0) {
  printf("+ %s %d %s %llu %d\n", call, device, place(address).c_str(), static_cast<unsigned long long>(bytes), stream);
}
static void ends(const char *call, int device, u64 address) { printf("- %s %d %s\n", call, device, place(address).c_str()); }
static void fails(const char *call, int device, u64 bytes) {
  printf("! %s %d %llu\n", call, device, static_cast<unsigned long long>(bytes));
}

static void enter(int device) {
  u64 context = 0;
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
}

extern "C" __attribute__((noinline)) u64 obtain_a_block(usize bytes) {
  u64 address = 0;
  MUST(cuMemAlloc_v2(&address, bytes));
  return address;
}

extern "C" __attribute__((noinline)) void families() {
  u64 plain = obtain_a_block(1000);
  begins("cuMemAlloc", 0, plain, 1000);

  u64 rows = 0, managed = 0;
  usize pitch = 0;
  MUST(cuMemAllocPitch_v2(&rows, &pitch, 100, 7, 4));
  begins("cuMemAllocPitch", 0, rows, pitch * 7);
  MUST(cuMemAllocManaged(&managed, 5000, 1));
  begins("cuMemAllocManaged", 0, managed, 5000);

  void *host = nullptr, *wished = nullptr;
  MUST(cuMemAllocHost_v2(&host, 4096));
  begins("cuMemAllocHost", HOST, reinterpret_cast<u64>(host), 4096);
  MUST(cuMemHostAlloc(&wished, 8192, 1));
  begins("cuMemHostAlloc", HOST, reinterpret_cast<u64>(wished), 8192);

  u64 stream = 0, pool = 0, in_order = 0, by_default = 0, of_thread = 0, pooled = 0;
  MUST(cuStreamCreate(&stream, 1));
  MUST(cuMemAllocAsync(&in_order, 2048, stream));
  begins("cuMemAllocAsync", 0, in_order, 2048, 1);
  MUST(cuMemAllocAsync(&by_default, 2049, 0));
  begins("cuMemAllocAsync", 0, by_default, 2049, 0);
  MUST(cuMemAllocAsync_ptsz(&of_thread, 2050, 0));
  begins("cuMemAllocAsync", 0, of_thread, 2050, 2);
  MUST(cuDeviceGetDefaultMemPool(&pool, 1));
  MUST(cuMemAllocFromPoolAsync(&pooled, 2051, pool, stream));
  begins("cuMemAllocFromPoolAsync", 1, pooled, 2051, 1);

  // What goes into a graph obtains and frees nothing yet.
  u64 in_graph = 0, graph = 0;
  MUST(cuStreamBeginCapture_v2(stream, 0));
  MUST(cuMemAllocAsync(&in_graph, 4097, stream));
  MUST(cuMemFreeAsync(in_graph, stream));
  MUST(cuStreamEndCapture(stream, &graph));

  u64 flat = 0, deep = 0, levels = 0;
  Array two = {64, 32, 0x20, 2};
  Array3d three = {16, 8, 4, 0x02, 1, 0};
  MUST(cuArrayCreate_v2(&flat, &two));
  begins("cuArrayCreate", 0, 0, 64 * 32 * 8);
  MUST(cuArray3DCreate_v2(&deep, &three));
  begins("cuArray3DCreate", 0, 0, 16 * 8 * 4 * 2);
  MUST(cuMipmappedArrayCreate(&levels, &three, 3));
  begins("cuMipmappedArrayCreate", 0, 0, (16 * 8 * 4 + 8 * 4 * 2 + 4 * 2) * 2);

  u64 none = 0;
  if (cuMemAlloc_v2(&none, u64(1) << 40) == 2) fails("cuMemAlloc", 0, u64(1) << 40);
  if (cuMemAllocAsync(&none, u64(1) << 41, stream) == 2) fails("cuMemAllocAsync", 0, u64(1) << 41);
  Properties properties = {1, 0, {1, 0}, {}};
  if (cuMemCreate(&none, u64(1) << 42, &properties, 0) == 2) fails("cuMemCreate", 0, u64(1) << 42);
  if (cuMemAlloc_v2(&none, 0) != 1) printf("? no bytes can be had\n");
  if (cuMemFree_v2(0x1234) != 1) printf("? what is nobody's can be freed\n");
  MUST(cuMemFree_v2(0));
  // Memory of the host's is not freed so: it is where it was.
  if (cuMemFree_v2(reinterpret_cast<u64>(wished)) != 1) printf("? memory of the host can be freed as a device's\n");
  ends("cuMemHostAlloc", HOST, reinterpret_cast<u64>(wished));
  begins("cuMemHostAlloc", HOST, reinterpret_cast<u64>(wished), 8192);

  MUST(cuMipmappedArrayDestroy(levels));
  ends("cuMipmappedArrayCreate", 0, 0);
  MUST(cuArrayDestroy(flat));
  ends("cuArrayCreate", 0, 0);
  MUST(cuMemFree_v2(in_order));
  ends("cuMemAllocAsync", 0, in_order);
  MUST(cuMemFreeAsync(plain, stream));
  ends("cuMemAlloc", 0, plain);
  MUST(cuMemFreeAsync_ptsz(pooled, 0));
  ends("cuMemAllocFromPoolAsync", 1, pooled);
  MUST(cuMemFree_v2(rows));
  ends("cuMemAllocPitch", 0, rows);
  MUST(cuMemFreeHost(host));
  ends("cuMemAllocHost", HOST, reinterpret_cast<u64>(host));

  // All the rest goes with the context.
  MUST(cuDevicePrimaryCtxReset_v2(0));
  ends("cuMemAllocManaged", 0, managed);
  ends("cuMemAllocAsync", 0, by_default);
  ends("cuMemAllocAsync", 0, of_thread);
  ends("cuArray3DCreate", 0, 0);
  ends("cuMemHostAlloc", HOST, reinterpret_cast<u64>(wished));
}

static u64 create(usize bytes, int device = 0) {
  Properties properties = {1, 0, {1, device}, {}};
  u64 handle = 0;
  MUST(cuMemCreate(&handle, bytes, &properties, 0));
  begins("cuMemCreate", device, 0, bytes);
  return handle;
}

// What is at `from` stands at `to` now.
static void moves(u64 from, u64 to, u64 bytes) {
  ends("cuMemCreate", 0, from);
  begins("cuMemCreate", 0, to, bytes);
}

extern "C" __attribute__((noinline)) void pages() {
  u64 start = 0;
  MUST(cuMemAddressReserve(&start, 16 * MIB, 0, 0, 0));

  // As allocators with expandable segments do.
  u64 first = create(2 * MIB);
  MUST(cuMemMap(start, 2 * MIB, 0, first, 0));
  moves(0, start, 2 * MIB);
  MUST(cuMemRelease(first));
  MUST(cuMemUnmap(start, 2 * MIB));
  ends("cuMemCreate", 0, start);

  // Unmapped before it is released, with another map between.
  u64 second = create(4 * MIB);
  MUST(cuMemMap(start + 4 * MIB, 4 * MIB, 0, second, 0));
  moves(0, start + 4 * MIB, 4 * MIB);
  MUST(cuMemUnmap(start + 4 * MIB, 4 * MIB));
  moves(start + 4 * MIB, 0, 4 * MIB);
  MUST(cuMemMap(start, 4 * MIB, 0, second, 0));
  moves(0, start, 4 * MIB);

  // Mapped twice, and held by a handle that was given again.
  MUST(cuMemMap(start + 8 * MIB, 4 * MIB, 0, second, 0));
  MUST(cuMemRelease(second));
  u64 again = 0;
  MUST(cuMemRetainAllocationHandle(&again, reinterpret_cast<void *>(start + 8 * MIB)));
  MUST(cuMemUnmap(start, 4 * MIB));
  moves(start, start + 8 * MIB, 4 * MIB);
  MUST(cuMemUnmap(start + 8 * MIB, 4 * MIB));
  moves(start + 8 * MIB, 0, 4 * MIB);
  MUST(cuMemRelease(again));
  ends("cuMemCreate", 0, 0);

  // Never mapped; another device's; released twice, which fails.
  u64 third = create(2 * MIB, 1);
  MUST(cuMemRelease(third));
  ends("cuMemCreate", 1, 0);
  if (cuMemRelease(third) == 0) printf("? a handle can be released twice\n");

  // Two that are taken away by one call.
  u64 left = create(2 * MIB), right = create(2 * MIB);
  MUST(cuMemMap(start, 2 * MIB, 0, left, 0));
  moves(0, start, 2 * MIB);
  MUST(cuMemMap(start + 2 * MIB, 2 * MIB, 0, right, 0));
  moves(0, start + 2 * MIB, 2 * MIB);
  MUST(cuMemRelease(left));
  MUST(cuMemRelease(right));
  MUST(cuMemUnmap(start, 4 * MIB));
  ends("cuMemCreate", 0, start);
  ends("cuMemCreate", 0, start + 2 * MIB);
  MUST(cuMemAddressFree(start, 16 * MIB));
}

// Threads that free what others obtained.
static void threads() {
  const int count = 8, rounds = 200;
  std::vector<u64> handed[count];
  std::vector<std::string> lines[count];
  for (int phase = 0; phase < 2; phase++) {
    std::vector<std::thread> all;
    for (int me = 0; me < count; me++) {
      all.emplace_back([&, me, phase] {
        enter(0);
        for (int round = 0; round < rounds; round++) {
          usize bytes = 512 + 64 * me + round;
          char line[128];
          if (phase == 0) {
            u64 kept = obtain_a_block(bytes), passing = obtain_a_block(bytes);
            MUST(cuMemFree_v2(passing));
            handed[(me + 1) % count].push_back(kept);
            for (int times = 0; times < 2; times++) {
              snprintf(line, sizeof line, "+ %zu", bytes);
              lines[me].push_back(line);
            }
            snprintf(line, sizeof line, "- %zu", bytes);
            lines[me].push_back(line);
          }
        }
        if (phase == 1)
          for (u64 address : handed[me]) MUST(cuMemFree_v2(address));
      });
    }
    for (auto &thread : all) thread.join();
  }
  for (auto &mine : lines)
    for (auto &line : mine) puts(line.c_str());
}

// A child that goes on with the parent's state, and one that is a program of its own.
static void children(const char *self) {
  u64 before = obtain_a_block(1111);
  begins("cuMemAlloc", 0, before, 1111);
  fflush(stdout);
  pid_t fork_child = fork();
  if (fork_child == 0) {
    obtain_a_block(2222);
    exit(0);
  }
  int status = 0;
  waitpid(fork_child, &status, 0);
  if (status) printf("? the child ended with %d\n", status);
  u64 after = obtain_a_block(3333);
  begins("cuMemAlloc", 0, after, 3333);
  fflush(stdout);
  pid_t other = fork();
  if (other == 0) {
    if (!freopen("/dev/null", "w", stdout)) _exit(5);
    execl(self, self, "pages", nullptr);
    _exit(5);
  }
  waitpid(other, &status, 0);
  if (WEXITSTATUS(status) != 7) printf("? the other program ended with %d\n", status);
}

// Ends without exit functions, at once.
static void ends_by(const std::string &way) {
  obtain_a_block(4444);
  if (way == "abort") abort();
  if (way == "_exit") _exit(7);
  if (way == "_Exit") _Exit(7);
  if (way == "quick_exit") quick_exit(7);
  if (way == "exec") execl("/bin/sh", "sh", "-c", "exit $0", "7", nullptr);
  if (way == "TERM") raise(SIGTERM);
  if (way == "INT") raise(SIGINT);
}

int main(int count, char **words) {
  std::string what = count > 1 ? words[1] : "";
  if (what == "nothing") return 7;
  meet();
  // "Next" is what comes behind this program, not behind whoever stands between it and the loader.
  void *next = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
  if (!next || next != reinterpret_cast<void *>(cuMemAlloc_v2)) printf("? dlsym takes another for its caller\n");
  if (dlsym(RTLD_NEXT, "strlen") != dlsym(RTLD_DEFAULT, "strlen")) printf("? dlsym finds two of a kind\n");
  if (dlsym(RTLD_DEFAULT, "cuda_has_no_such_function") || !dlerror()) printf("? dlsym finds anything\n");
  MUST(cuInit(0));
  enter(0);
  if (what == "families") families();
  if (what == "pages") pages();
  if (what == "threads") threads();
  if (what == "children") children(words[0]);
  if (what == "framework") {
    auto beside = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "highwater_inject_leave_to_framework"));
    beside(words[2][0] - '0');
  }
  if (count > 2) ends_by(words[2]);
  if (what == "killed") {
    obtain_a_block(4444);
    usleep(300000);
    fflush(stdout);
    raise(9);
  }
  return 7;
}
