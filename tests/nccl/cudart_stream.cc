// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* The double of libcudart.so.13: streams (a thread each), events, and kernel launches, which a
 * player executes */
#include "nccl/cudart.h"
#include "nccl/player.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace cudart_double;

namespace
{

struct Stream {
    std::mutex m;
    std::condition_variable more, less;
    std::deque<std::function<void()>> queue;
    bool busy = false, closing = false;
    /* Set by a kernel that could not be played. It is never cleared, as the error of a faulty GPU
     * kernel is not. */
    std::atomic<cudaError_t> error{cudaSuccess};
    std::thread thread;

    void run()
    {
        std::unique_lock<std::mutex> l(m);
        while (true) {
            more.wait(l, [this] { return closing || !queue.empty(); });
            if (queue.empty())
                return;
            std::function<void()> f = std::move(queue.front());
            queue.pop_front();
            busy = true;
            l.unlock();
            f();
            f = nullptr;
            l.lock();
            busy = false;
            if (queue.empty())
                less.notify_all();
        }
    }
    void put(std::function<void()> f)
    {
        std::lock_guard<std::mutex> l(m);
        if (!thread.joinable())
            thread = std::thread([this] {
                pthread_setname_np(pthread_self(), "cudart-double");
                run();
            });
        queue.push_back(std::move(f));
        more.notify_one();
    }
    bool idle()
    {
        std::lock_guard<std::mutex> l(m);
        return queue.empty() && !busy;
    }
    void wait()
    {
        std::unique_lock<std::mutex> l(m);
        less.wait(l, [this] { return queue.empty() && !busy; });
    }
    void close()
    {
        {
            std::lock_guard<std::mutex> l(m);
            closing = true;
            more.notify_one();
        }
        if (thread.joinable())
            thread.join();
    }
};

std::mutex streams_lock;
/* Never destroyed: NCCL's threads may still use them while the process exits. */
std::map<cudaStream_t, std::shared_ptr<Stream>> &streams()
{
    static auto *m = new std::map<cudaStream_t, std::shared_ptr<Stream>>;
    return *m;
}

std::shared_ptr<Stream> stream_of(cudaStream_t s)
{
    if (s == cudaStreamLegacy || s == cudaStreamPerThread)
        s = nullptr;
    std::lock_guard<std::mutex> hold(streams_lock);
    auto it = streams().find(s);
    if (it != streams().end())
        return it->second;
    if (s)
        return nullptr;
    auto made = std::make_shared<Stream>();
    streams()[nullptr] = made;
    return made;
}

struct Event {
    std::mutex m;
    std::condition_variable c;
    uint64_t recorded = 0, done = 0;
    double when = 0;
};

double now()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

std::mutex events_lock;
std::map<cudaEvent_t, std::shared_ptr<Event>> &events()
{
    static auto *m = new std::map<cudaEvent_t, std::shared_ptr<Event>>;
    return *m;
}
std::shared_ptr<Event> event_of(cudaEvent_t e)
{
    std::lock_guard<std::mutex> hold(events_lock);
    auto it = events().find(e);
    return it == events().end() ? nullptr : it->second;
}

std::mutex kernels_lock;
std::map<const void *, std::string> &kernels()
{
    static auto *m = new std::map<const void *, std::string>;
    return *m;
}

play_kernel_t player()
{
    static play_kernel_t p = [] {
        std::string path;
        const char *named = getenv("CUDART_DOUBLE_PLAYER");
        Dl_info here;
        if (named && *named)
            path = named;
        else if (dladdr(reinterpret_cast<void *>(&player), &here) && here.dli_fname) {
            path = here.dli_fname;
            path = path.substr(0, path.rfind('/') + 1) + "libncclplayer.so";
        }
        void *lib = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!lib) {
            say("no kernel can be played: %s", dlerror());
            return static_cast<play_kernel_t>(nullptr);
        }
        return reinterpret_cast<play_kernel_t>(dlsym(lib, "play_kernel"));
    }();
    return p;
}

} // namespace

cudaError_t cudart_double::launch(const void *fn, unsigned grid, unsigned block, const void *args,
                                  size_t bytes, cudaStream_t stream)
{
    std::string name;
    {
        std::lock_guard<std::mutex> hold(kernels_lock);
        auto it = kernels().find(fn);
        if (it == kernels().end())
            return fail(cudaErrorInvalidDeviceFunction);
        name = it->second;
    }
    auto s = stream_of(stream);
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    play_kernel_t play = player();
    if (!play) {
        say("kernel %s is refused: there is no player", name.c_str());
        return fail(cudaErrorNotSupported);
    }
    auto copy =
        std::shared_ptr<char>(static_cast<char *>(aligned_alloc(64, (bytes + 63) / 64 * 64)), free);
    memcpy(copy.get(), args, bytes);
    static const bool verbose = env_long("CUDART_DOUBLE_VERBOSE", 0) != 0;
    if (verbose)
        say("launch %s<<<%u,%u>>> %zu bytes", name.c_str(), grid, block, bytes);
    Stream *on = s.get(); /* outlives what it executes */
    s->put([=] {
        int rc = play(name.c_str(), grid, block, copy.get(), bytes);
        if (!rc)
            return;
        say("kernel %s cannot be played (%d)", name.c_str(), rc);
        on->error = cudaErrorLaunchFailure;
    });
    return cudaSuccess;
}

extern "C" {

cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, enum cudaMemcpyKind,
                            cudaStream_t stream)
{
    auto q = stream_of(stream);
    if (!q)
        return fail(cudaErrorInvalidResourceHandle);
    uintptr_t at;
    Block b;
    if (!find_block(s, &at,
                    &b)) { /* a pageable source: its bytes are copied at the call, as CUDA does */
        auto copy = std::make_shared<std::vector<char>>(static_cast<const char *>(s),
                                                        static_cast<const char *>(s) + n);
        q->put([=] { memcpy(d, copy->data(), n); });
    } else
        q->put([=] { memmove(d, s, n); });
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *d, const void *s, size_t n, enum cudaMemcpyKind k)
{
    cudaError_t e = cudaMemcpyAsync(d, s, n, k, nullptr);
    return e ? e : cudaStreamSynchronize(nullptr);
}
cudaError_t cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t stream)
{
    auto q = stream_of(stream);
    if (!q)
        return fail(cudaErrorInvalidResourceHandle);
    q->put([=] { memset(d, v, n); });
    return cudaSuccess;
}
cudaError_t cudaMemset(void *d, int v, size_t n)
{
    cudaError_t e = cudaMemsetAsync(d, v, n, nullptr);
    return e ? e : cudaStreamSynchronize(nullptr);
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
    auto q = stream_of(stream);
    if (!q)
        return fail(cudaErrorInvalidResourceHandle);
    q->put([=] { cudaFree(p); });
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    auto made = std::make_shared<Stream>();
    *s = reinterpret_cast<cudaStream_t>(made.get());
    std::lock_guard<std::mutex> hold(streams_lock);
    streams()[*s] = made;
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    return cudaStreamCreateWithFlags(s, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned f, int)
{
    return cudaStreamCreateWithFlags(s, f);
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    std::shared_ptr<Stream> gone;
    {
        std::lock_guard<std::mutex> hold(streams_lock);
        auto it = streams().find(s);
        if (!s || it == streams().end())
            return fail(cudaErrorInvalidResourceHandle);
        gone = it->second;
        streams().erase(it);
    }
    /* CUDA returns at once and still executes queued work. */
    std::thread([gone] { gone->close(); }).detach();
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    auto q = stream_of(s);
    if (!q)
        return fail(cudaErrorInvalidResourceHandle);
    q->wait();
    return q->error ? fail(q->error) : cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t s)
{
    auto q = stream_of(s);
    if (!q)
        return fail(cudaErrorInvalidResourceHandle);
    if (!q->idle())
        return cudaErrorNotReady;
    return q->error ? fail(q->error) : cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
    std::vector<std::shared_ptr<Stream>> all;
    {
        std::lock_guard<std::mutex> hold(streams_lock);
        for (auto &s : streams())
            all.push_back(s.second);
    }
    for (auto &s : all)
        s->wait();
    return cudaSuccess;
}
cudaError_t cudaStreamGetId(cudaStream_t s, unsigned long long *id)
{
    *id = reinterpret_cast<uintptr_t>(s);
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, enum cudaStreamCaptureStatus *st)
{
    *st = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, enum cudaStreamCaptureStatus *st,
                                     unsigned long long *, cudaGraph_t *, const cudaGraphNode_t **,
                                     const cudaGraphEdgeData **, size_t *)
{
    *st = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t, cudaGraphNode_t *,
                                                const cudaGraphEdgeData *, size_t, unsigned)
{
    return lacking("cudaStreamUpdateCaptureDependencies");
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *)
{
    return cudaSuccess;
}
cudaError_t cudaGraphAddDependencies(cudaGraph_t, const cudaGraphNode_t *, const cudaGraphNode_t *,
                                     const cudaGraphEdgeData *, size_t)
{
    return lacking("cudaGraphAddDependencies");
}
cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *, cudaGraph_t, const cudaGraphNode_t *,
                                        size_t, cudaEvent_t)
{
    return lacking("cudaGraphAddEventRecordNode");
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t, cudaUserObject_t, unsigned, unsigned)
{
    return lacking("cudaGraphRetainUserObject");
}
cudaError_t cudaUserObjectCreate(cudaUserObject_t *, void *, cudaHostFn_t, unsigned, unsigned)
{
    return lacking("cudaUserObjectCreate");
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *data)
{
    auto q = stream_of(s);
    if (!q)
        return fail(cudaErrorInvalidResourceHandle);
    q->put([=] { fn(data); });
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    auto made = std::make_shared<Event>();
    *e = reinterpret_cast<cudaEvent_t>(made.get());
    std::lock_guard<std::mutex> hold(events_lock);
    events()[*e] = made;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    std::lock_guard<std::mutex> hold(events_lock);
    return events().erase(e) ? cudaSuccess : fail(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    auto ev = event_of(e);
    auto q = stream_of(s);
    if (!ev || !q)
        return fail(cudaErrorInvalidResourceHandle);
    uint64_t n;
    {
        std::lock_guard<std::mutex> l(ev->m);
        n = ++ev->recorded;
    }
    q->put([=] {
        std::lock_guard<std::mutex> l(ev->m);
        if (ev->done < n)
            ev->done = n;
        ev->when = now();
        ev->c.notify_all();
    });
    return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned)
{
    return cudaEventRecord(e, s);
}
cudaError_t cudaEventQuery(cudaEvent_t e)
{
    auto ev = event_of(e);
    if (!ev)
        return fail(cudaErrorInvalidResourceHandle);
    std::lock_guard<std::mutex> l(ev->m);
    return ev->done >= ev->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    auto ev = event_of(e);
    if (!ev)
        return fail(cudaErrorInvalidResourceHandle);
    std::unique_lock<std::mutex> l(ev->m);
    uint64_t n = ev->recorded;
    ev->c.wait(l, [&] { return ev->done >= n; });
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
    auto x = event_of(a), y = event_of(b);
    if (!x || !y)
        return fail(cudaErrorInvalidResourceHandle);
    *ms = static_cast<float>((y->when - x->when) * 1e3);
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    auto ev = event_of(e);
    auto q = stream_of(s);
    if (!ev || !q)
        return fail(cudaErrorInvalidResourceHandle);
    uint64_t n;
    {
        std::lock_guard<std::mutex> l(ev->m);
        n = ev->recorded;
        if (ev->done >= n)
            return cudaSuccess;
    }
    q->put([=] {
        std::unique_lock<std::mutex> l(ev->m);
        ev->c.wait(l, [&] { return ev->done >= n; });
    });
    return cudaSuccess;
}

/* ---- kernels ---- */

void **__cudaRegisterFatBinary(void *)
{
    static void *handle[2];
    return handle;
}
void __cudaRegisterFatBinaryEnd(void **)
{
}
void __cudaUnregisterFatBinary(void **)
{
}
void __cudaRegisterFunction(void **, const char *host, char *, const char *name, int, void *,
                            void *, void *, void *, int *)
{
    std::lock_guard<std::mutex> hold(kernels_lock);
    kernels()[host] = name;
}
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int)
{
}
char __cudaInitModule(void **)
{
    return 1;
}
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void *)
{
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *)
{
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *k, const void *f)
{
    *k = reinterpret_cast<cudaKernel_t>(const_cast<void *>(f));
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void **, size_t, cudaStream_t)
{
    return lacking("__cudaLaunchKernel");
}
cudaError_t cudaLaunchKernel(const void *f, dim3, dim3, void **, size_t, cudaStream_t)
{
    std::lock_guard<std::mutex> hold(kernels_lock);
    auto it = kernels().find(f);
    say("cudaLaunchKernel of %s: not in this double",
        it == kernels().end() ? "?" : it->second.c_str());
    return fail(cudaErrorNotSupported);
}
cudaError_t cudaGetFuncBySymbol(cudaFunction_t *f, const void *symbol)
{
    std::lock_guard<std::mutex> hold(kernels_lock);
    if (!kernels().count(symbol))
        return fail(cudaErrorInvalidDeviceFunction);
    *f = reinterpret_cast<cudaFunction_t>(const_cast<void *>(symbol));
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *)
{
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = 1024;
    a->binaryVersion = 90;
    a->ptxVersion = 90;
    a->sharedSizeBytes = 32768;
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *, enum cudaFuncAttribute, int)
{
    return cudaSuccess;
}

} // extern "C"
