// The plugin's word on the layout: at INFO when it starts, and not a file read when nobody listens.
#include <gtest/gtest.h>

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "nccl/net_v11.h"

namespace
{

std::string said;

void logger(ncclDebugLogLevel, unsigned long, const char *, int, const char *fmt, ...)
{
    char line[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    said += std::string(line) + "\n";
}

// Starts and ends the built plugin, on loopback.
std::string start(const char *debug)
{
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_PVRDMA_TRANSPORT", "tcp", 1);
    setenv("NCCL_DEBUG", debug, 1);
    said.clear();
    void *lib = dlopen(PVN_BUILDDIR "/.libs/libnccl-net-pvrdma.so", RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(nullptr, lib) << dlerror();
    if (lib == nullptr)
        return "";
    auto *net = static_cast<ncclNet_v11_t *>(dlsym(lib, "ncclNetPlugin_v11"));
    ncclNetCommConfig_v11_t config = {};
    void *ctx = nullptr;
    EXPECT_EQ(ncclSuccess, net->init(&ctx, 1, &config, logger, nullptr)) << said;
    EXPECT_EQ(ncclSuccess, net->finalize(ctx)) << said;
    return said;
}

TEST(Layout, IsToldAtInfo)
{
    std::string text = start("INFO");
    EXPECT_NE(std::string::npos, text.find("topology: ")) << text;
    EXPECT_NE(std::string::npos, text.find("1 network device, worked out in ")) << text;
}

TEST(Layout, IsNotWorkedOutWhenNobodyListens)
{
    EXPECT_EQ(std::string::npos, start("WARN").find("topology: ")) << said;
}

} // namespace
