/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A GoogleTest fixture for the libcuda.so.1 double. It has three devices, CUDA is initialised,
 * and device 0's primary context is current. After each test nothing may be left over. */
#ifndef PVN_TESTS_FAKECUDA_FIXTURE_H
#define PVN_TESTS_FAKECUDA_FIXTURE_H

#include <gtest/gtest.h>
#include <dlfcn.h>
#include <string>
#include <vector>
extern "C" {
#include "memory/cuda_abi.h"
#include "memory/cuda_shim.h"
#include "support/fakecuda.h"
#include "tests/support/paths.h"
}

inline std::string fakecuda_path(const std::string &which = "libcuda")
{
    return std::string(PVN_BUILDDIR) + "/tests/support/.libs/" + which + ".so.1";
}

class FakeCuda : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        lib = dlopen(fakecuda_path().c_str(), RTLD_NOW | RTLD_LOCAL);
        ASSERT_NE(lib, nullptr) << dlerror();
        fake = static_cast<const fakecuda_control *>(dlsym(lib, "fakecuda_control"));
        ASSERT_NE(fake, nullptr);
        const fakecuda_device devs[] = {
            {"0000:0B:00.0", "Fake A100", 8, 0, 1, 1, 1, PVN_CU_FLUSH_OPT_HOST, PVN_CU_ORDER_NONE},
            {"0000:1B:00.0", "Fake H100", 9, 0, 1, 1, 1, PVN_CU_FLUSH_OPT_HOST, PVN_CU_ORDER_ALL},
            {"0001:C3:00.0", "Fake GTX", 7, 5, 0, 0, 0, 0, PVN_CU_ORDER_NONE},
        };
        fake->reset(devs, 3);
        fake->init();
        fake->activate_primary(0, 1);
        fake->set_current(fake->primary(0));
        ASSERT_EQ(pvn_cuda_open(&cu, fakecuda_path().c_str(), &why), 0) << why.reason[0];
    }

    void TearDown() override
    {
        pvn_cuda_close(cu);
        EXPECT_EQ(fake->dmabuf_open(), 0) << "a dma-buf descriptor is still open";
        for (int dev = 0; dev < 3; dev++)
            EXPECT_EQ(fake->primary_refs(dev), 0)
                << "primary context of device " << dev << " is still held";
        dlclose(lib);
    }

    void *lib = nullptr;
    const fakecuda_control *fake = nullptr;
    pvn_cuda *cu = nullptr;
    pvn_err why = {};
};

#endif
