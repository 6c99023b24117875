// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The plugin with worker threads for TCP, through NCCL's interface.
#include "abi/nccl_side.h"

#include <cstdlib>
#include <dirent.h>
#include <fstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

using namespace nccl;

namespace
{

// How many worker threads this process has. They are known by name, because sanitizers have threads
// of their own.
int workers()
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    while (dirent *e = d ? readdir(d) : nullptr) {
        std::string name;
        std::ifstream(std::string("/proc/self/task/") + e->d_name + "/comm") >> name;
        n += name == "pvn-tcp";
    }
    if (d)
        closedir(d);
    return n;
}

// Worker threads start with the first connection, serve all connections, and end with the last one.
// A forked child has none of its parent's workers, starts its own, and disturbs no comm of its
// parent.
TEST(Workers, ComeWithTheFirstConnectionAndGoWithTheLast)
{
    ASSERT_EQ(0, workers());
    setenv("NCCL_PVRDMA_TCP_THREADS", "2", 1);
    {
        Net n(12);
        Pair p(n), q(n);
        ASSERT_TRUE(p.up() && q.up());
        EXPECT_EQ(2, workers());
        Flow f = plain(p, {1, 100000, 5000000});
        EXPECT_TRUE(f.run());
        f.check();
#ifndef __SANITIZE_THREAD__ // which ends a child of a process with threads that starts its own
        pid_t child = fork();
        if (child == 0) {
            Net own(12);
            Pair mine(own);
            Flow in_child = plain(mine, {3000000});
            bool good = mine.up() && in_child.run() && workers() == 2;
            mine.close();
            _exit(good && workers() == 0 ? 0 : 1);
        }
        int status = -1;
        ASSERT_EQ(child, waitpid(child, &status, 0));
        EXPECT_EQ(0, status);
#endif
        Flow g = plain(q, {5000000, 1});
        EXPECT_TRUE(g.run());
        g.check();
    }
    unsetenv("NCCL_PVRDMA_TCP_THREADS");
    EXPECT_EQ(0, workers()) << "the last connection is closed";
}

} // namespace
