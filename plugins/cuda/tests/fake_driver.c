// A CUDA driver for cuda-bindings to load: one device whose memory is the host's, and whose only kernel, "add", adds its third argument
// to the float at address + offset. Every call is written to standard output.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int R;
typedef void *H;
typedef unsigned long long P;
#define SAY(...) (printf(__VA_ARGS__), putchar('\n'), fflush(stdout))
#define NEW(handle) (*(handle) = malloc(16))
enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_IMAGE = 200, NOT_FOUND = 500 };

static const char *failing(void) { const char *name = getenv("FAKE_FAILS"); return name ? name : ""; }
#define CALL(name) do { if (!strcmp(failing(), #name)) return atoi(getenv("FAKE_STATUS")); } while (0)

R cuInit(unsigned flags) { CALL(cuInit); return 0; }
static int setting(const char *name, int otherwise) { const char *text = getenv(name); return text ? atoi(text) : otherwise; }

R cuDriverGetVersion(int *version) { *version = setting("FAKE_DRIVER", 13000); return 0; }
R cuGetErrorName(R status, const char **text) { *text = status == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OTHER"; return 0; }
R cuGetErrorString(R status, const char **text) { *text = "on purpose"; return 0; }
R cuDeviceGetCount(int *count) { *count = atoi(getenv("FAKE_DEVICES")); return 0; }
R cuDeviceGet(int *device, int number) { *device = number; return 0; }
R cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "Fake %d", device); return 0; }
R cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 1 << 30; return 0; }
R cuDeviceGetAttribute(int *value, int kind, int device) {
    int capability = setting("FAKE_CAPABILITY", 86), pools = setting("FAKE_POOLS", 1);
    if (kind == 115 && pools < 0) return INVALID_VALUE; // a driver that does not know the attribute
    *value = kind == 75 ? capability / 10 : kind == 76 ? capability % 10 : kind == 115 ? pools : kind == 18 ? 0 : kind;
    return 0;
}
R cuDevicePrimaryCtxRetain(H *context, int device) { return NEW(context), 0; }
static H stack[9] = {"another"};
static int top;
R cuCtxGetCurrent(H *context) { return *context = stack[top], 0; }
R cuCtxPushCurrent_v2(H context) { return stack[++top] = context, 0; }
R cuCtxPopCurrent_v2(H *context) { return *context = stack[top--], 0; }
static R inside(const char *name) { if (!top) SAY("%s outside of the context", name); return 0; }
R cuMemGetInfo_v2(size_t *bytes, size_t *total) { *bytes = 5, *total = 1 << 30; return 0; }
R cuMemPoolCreate(H *pool, const int *wanted) { CALL(cuMemPoolCreate); SAY("pool %d %d %d", wanted[0], wanted[2], wanted[3]); return NEW(pool), 0; }
R cuMemPoolSetAttribute(H pool, int kind, void *value) { SAY("pool keeps %d %llu", kind, *(P *)value); return 0; }
R cuMemPoolTrimTo(H pool, size_t kept) { SAY("trim %zu", kept); return 0; }
R cuMemAllocFromPoolAsync(P *address, size_t size, H pool, H stream) { CALL(cuMemAllocFromPoolAsync); *address = (P)aligned_alloc(256, (size + 255) / 256 * 256); return 0; }
R cuMemAlloc_v2(P *address, size_t size) { SAY("allocate %zu", size); *address = (P)aligned_alloc(256, (size + 255) / 256 * 256); return 0; }
R cuMemFree_v2(P address) { SAY("free"); free((void *)address); return 0; }
R cuMemFreeAsync(P address, H stream) { free((void *)address); return 0; }
R cuMemHostAlloc(void **address, size_t size, unsigned flags) { *address = aligned_alloc(64, (size + 63) / 64 * 64); return 0; }
R cuMemFreeHost(void *address) { free(address); return 0; }
R cuPointerGetAttribute(void *value, int kind, P address) { if (address < 4096) return INVALID_VALUE; *(int *)value = 1; return 0; }
R cuStreamCreate(H *stream, unsigned flags) { inside("stream"); SAY("stream %u", flags); return NEW(stream), 0; }
R cuStreamDestroy_v2(H stream) { free(stream); return 0; }
R cuStreamSynchronize(H stream) { CALL(cuStreamSynchronize); return 0; }
R cuStreamWaitEvent(H stream, H event, unsigned flags) { SAY("wait"); return 0; }
R cuEventCreate(H *event, unsigned flags) { SAY("event %u", flags); return NEW(event), 0; }
R cuEventDestroy_v2(H event) { free(event); return 0; }
R cuEventRecord(H event, H stream) { return 0; }
R cuEventSynchronize(H event) { return 0; }
R cuEventElapsedTime_v2(float *time, H start, H end) { *time = 250; return 0; }
R cuEventElapsedTime(float *time, H start, H end) { *time = 250; return 0; }
R cuMemcpyHtoDAsync_v2(P to, const void *from, size_t size, H stream) { memcpy((void *)to, from, size); return 0; }
R cuMemcpyDtoHAsync_v2(void *to, P from, size_t size, H stream) { memcpy(to, (void *)from, size); return 0; }
R cuMemcpyDtoDAsync_v2(P to, P from, size_t size, H stream) { memcpy((void *)to, (void *)from, size); return 0; }
R cuMemsetD8Async(P to, unsigned char value, size_t size, H stream) { memset((void *)to, value, size); return 0; }
R cuTensorMapEncodeTiled(
    void *map, int type, unsigned rank, void *address, const uint64_t *shape, const uint64_t *strides, const unsigned *box, const unsigned *steps,
    int interleave, int swizzle, int promotion, int fill
) {
    if ((uint64_t)map % 64 || (uint64_t)address % 16) return INVALID_VALUE;
    SAY("map %d %u, %d %d, %d %d / %d %d / %u %u", type, rank, (int)shape[0], (int)shape[1], (int)strides[0], (int)strides[1], interleave, swizzle, box[0], steps[1]);
    return memset(map, 7, 128), 0;
}
R cuModuleLoadData(H *module, const char *image) {
    if (strcmp(image, "cubin") && strcmp(image, "ptx")) return INVALID_IMAGE;
    if (*image == 'p') SAY("compile PTX");
    return NEW(module), 0;
}
R cuModuleUnload(H module) { SAY("unload"); free(module); return 0; }
R cuModuleGetFunction(H *function, H module, const char *name) { if (strcmp(name, "add")) return NOT_FOUND; return NEW(function), 0; }
R cuFuncGetAttribute(int *value, int kind, H function) { *value = kind == 0 ? 256 : 64; return 0; }
R cuFuncSetAttribute(H function, int kind, int value) { SAY("function allows %d %d", kind, value); return 0; }
R cuFuncGetParamInfo(H function, size_t index, size_t *offset, size_t *size) { *offset = 8 * index, *size = 8; return index < 3 ? 0 : INVALID_VALUE; }

struct Node { H function; unsigned grid[3], block[3], shared; void **arguments; };
struct Graph { int count; struct { struct Node node; uint64_t values[3]; } kept[8]; };

static R run(const struct Node *node) {
    SAY("run %u %u %u / %u %u %u / %u", node->grid[0], node->grid[1], node->grid[2], node->block[0], node->block[1], node->block[2], node->shared);
    *(float *)(*(char **)node->arguments[0] + *(int64_t *)node->arguments[1]) += *(int64_t *)node->arguments[2];
    return 0;
}
R cuLaunchKernel(H f, unsigned a, unsigned b, unsigned c, unsigned x, unsigned y, unsigned z, unsigned shared, H stream, void **arguments, void **extra) {
    CALL(cuLaunchKernel);
    inside("launch");
    struct Node node = {f, {a, b, c}, {x, y, z}, shared, arguments};
    return extra ? INVALID_VALUE : run(&node);
}
R cuGraphCreate(H *graph, unsigned flags) { *graph = calloc(1, sizeof(struct Graph)); return 0; }
R cuGraphAddKernelNode_v2(H *node, struct Graph *graph, const H *before, size_t count, const struct Node *wanted) {
    int at = graph->count++;
    if (count != (at > 0) || (at && before[0] != &graph->kept[at - 1])) return INVALID_VALUE;
    graph->kept[at].node = *wanted;
    for (int i = 0; i < 3; i++) graph->kept[at].values[i] = *(uint64_t *)wanted->arguments[i];
    *node = &graph->kept[at];
    return 0;
}
R cuGraphInstantiateWithFlags(struct Graph **made, struct Graph *graph, P flags) { CALL(cuGraphInstantiate); return memcpy(*made = malloc(sizeof *graph), graph, sizeof *graph), 0; }
R cuGraphDestroy(H graph) { SAY("graph gone"); free(graph); return 0; }
R cuGraphExecDestroy(H graph) { free(graph); return 0; }
R cuGraphLaunch(struct Graph *graph, H stream) {
    inside("graph");
    for (int i = 0; i < graph->count; i++) {
        void *arguments[3];
        for (int j = 0; j < 3; j++) arguments[j] = &graph->kept[i].values[j];
        struct Node node = graph->kept[i].node;
        node.arguments = arguments;
        run(&node);
    }
    return 0;
}
R cuGetProcAddress_v2(const char *name, void **found, int version, P flags, int *status) {
    static const char *const ends[] = {"_v2", "WithFlags", ""};
    char whole[128];
    const char *lacks = getenv("FAKE_LACKS");
    *found = 0;
    if (lacks && !strcmp(name, lacks)) {
        if (status) *status = 1;
        return NOT_FOUND;
    }
    for (int i = 0; i < 3 && !*found; i++) snprintf(whole, sizeof whole, "%s%s", name, ends[i]), *found = dlsym(RTLD_DEFAULT, whole);
    if (!*found) {
        void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        for (int i = 0; i < 3 && !*found; i++) snprintf(whole, sizeof whole, "%s%s", name, ends[i]), *found = dlsym(self, whole);
    }
    if (status) *status = *found ? 0 : 1;
    return *found ? 0 : NOT_FOUND;
}
