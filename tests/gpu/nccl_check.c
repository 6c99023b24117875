/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* nccl_check runs NCCL's collectives from C, over several ranks on one GPU. Each rank is a
 * process with its own NCCL_HOSTID, so that NCCL uses the network. It checks results exactly,
 * measures, or kills a rank. It needs a GPU, libcuda.so.1 and libnccl.so.2 only at run time. */
#include "config.h"
#include "gpu/nccl_rank.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const char usage[] =
    "usage: nccl_check [options]\n"
    "  --mode check|bench|kill  exact results (default), a bandwidth table, or a rank killed in "
    "mid-collective\n"
    "  --ranks N                2 to 8 processes (2)\n"
    "  --sizes A,B,...          bytes, with k, m: 8 to 1g (check: 8,1k,... 256m; bench: 8,... "
    "256m; kill: 16m)\n"
    "  --coll A,B,...           allreduce allgather reducescatter broadcast sendrecv alltoall "
    "(bench: allreduce)\n"
    "  --iters N                repetitions of each check (2), most calls of a measurement (2000)\n"
    "  --dev N                  GPU (0)\n"
    "  --stop S                 the last rank is stopped (SIGSTOP) for S seconds after the first check\n"
    "  --op-timeout S           an operation that takes longer hangs (60)\n"
    "  --timeout S              of everything (300)\n"
    "  --same-host              leave NCCL_HOSTID alone\n"
    "  --label TEXT             second word of the bandwidth lines\n"
    "  --cuda LIB, --nccl LIB   libraries (libcuda.so.1, libnccl.so.2)\n"
    "Ends with 0, 1 (failed), 2 (usage) or 77 (no GPU or library here).\n";

enum { MAX_BYTES = 1 << 30 };

static int parse_sizes(struct nc_options *o, const char *text)
{
    o->nsizes = 0;
    for (const char *p = text; *p;) {
        char *end;
        unsigned long long v = strtoull(p, &end, 10);
        int shift = *end == 'k' ? 10 : *end == 'm' ? 20 : *end == 'g' ? 30 : 0;
        if (shift)
            end++;
        if (end == p || (*end && *end != ',') || v > MAX_BYTES || v << shift < 8 ||
            v << shift > MAX_BYTES || o->nsizes == NC_MAX_SIZES)
            return -1;
        o->sizes[o->nsizes++] = (size_t)v << shift;
        p = *end ? end + 1 : end;
    }
    return o->nsizes ? 0 : -1;
}

static int parse_int(const char *text, int min, int max, int *out)
{
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (end == text || *end || errno || v < min || v > max)
        return -1;
    *out = (int)v;
    return 0;
}

static int parse_mode(const char *text, enum nc_mode *mode)
{
    static const char *const names[] = {"check", "bench", "kill"};
    for (int i = 0; i < 3; i++) {
        if (!strcmp(text, names[i])) {
            *mode = (enum nc_mode)i;
            return 0;
        }
    }
    return -1;
}

static int parse(struct nc_options *o, int argc, char **argv)
{
    static const struct option options[] = {
        {"mode", 1, NULL, 'm'},       {"ranks", 1, NULL, 'n'},   {"sizes", 1, NULL, 's'},
        {"coll", 1, NULL, 'c'},       {"iters", 1, NULL, 'i'},   {"dev", 1, NULL, 'd'},
        {"op-timeout", 1, NULL, 'o'}, {"timeout", 1, NULL, 't'}, {"label", 1, NULL, 'l'},
        {"same-host", 0, NULL, 'H'},  {"cuda", 1, NULL, 'u'},    {"nccl", 1, NULL, 'N'},
        {"stop", 1, NULL, 'S'},       {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0},
    };
    const char *sizes = NULL;
    int opt, index = 0, bad = 0;
    while ((opt = getopt_long(argc, argv, "", options, &index)) != -1) {
        switch (opt) {
        case 'm':
            bad = parse_mode(optarg, &o->mode);
            break;
        case 'n':
            bad = parse_int(optarg, 2, NC_MAX_RANKS, &o->ranks);
            break;
        case 's':
            sizes = optarg;
            break;
        case 'c':
            o->colls = optarg;
            break;
        case 'i':
            bad = parse_int(optarg, 1, 100000, &o->iters);
            break;
        case 'd':
            bad = parse_int(optarg, 0, 63, &o->dev);
            break;
        case 'o':
            bad = parse_int(optarg, 1, 3600, &o->op_timeout_s);
            break;
        case 't':
            bad = parse_int(optarg, 1, 3600, &o->timeout_s);
            break;
        case 'S':
            bad = parse_int(optarg, 1, 3600, &o->stop_s);
            break;
        case 'l':
            o->label = optarg;
            break;
        case 'H':
            o->same_host = true;
            break;
        case 'u':
            o->cuda_lib = optarg;
            break;
        case 'N':
            o->nccl_lib = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(NC_OK);
        default:
            fputs(usage, stderr);
            return -1;
        }
        if (bad) {
            fprintf(stderr, "--%s: \"%s\" is not valid\n%s", options[index].name, optarg, usage);
            return -1;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "unexpected argument \"%s\"\n%s", argv[optind], usage);
        return -1;
    }
    if (!o->iters)
        o->iters = o->mode == NC_MODE_BENCH ? 2000 : 2;
    if (!sizes)
        sizes = o->mode == NC_MODE_KILL    ? "16m"
                : o->mode == NC_MODE_BENCH ? "8,1k,64k,1m,4m,16m,64m,256m"
                                           : "8,100,1k,32k,1000004,8m,64m,256m";
    if (parse_sizes(o, sizes)) {
        fprintf(stderr, "--sizes: \"%s\" is not a list of sizes from 8 to 1g\n", sizes);
        return -1;
    }
    return 0;
}

static int run_rank(const struct nc_options *o, struct nc_shared *shared, int rank)
{
    struct nc_rank r = {.opt = o, .shared = shared, .rank = rank};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int rc = nc_rank_open(&r);
    if (!rc && !nc_barrier(&r))
        rc = NC_FAILED;
    if (!rc) {
        switch (o->mode) {
        case NC_MODE_CHECK:
            rc = nc_check(&r);
            break;
        case NC_MODE_BENCH:
            rc = nc_bench(&r);
            break;
        case NC_MODE_KILL:
            rc = nc_survive(&r);
            break;
        }
    }
    /* After a failure the other ranks may be stuck in a collective. An orderly end would then
     * hang, too. */
    if (rc == NC_OK)
        nc_rank_close(&r);
    fflush(stdout);
    _exit(rc);
}

static void kill_victim(struct nc_shared *shared, pid_t pid)
{
    shared->dead_at = pvn_now_s();
    atomic_store(&shared->victim_dead, 1);
    kill(pid, SIGKILL);
    printf("# killed rank process %d\n", (int)pid);
}

/* Makes a rank late: stops it after the first check, and continues it after its time. */
static void stop_for_a_time(const struct nc_options *o, struct nc_shared *shared, pid_t pid)
{
    if (shared->stopped_at == 0 && atomic_load(&shared->passed) > 0) {
        shared->stopped_at = pvn_now_s();
        kill(pid, SIGSTOP);
    } else if (shared->stopped_at > 0 && shared->continued_at == 0 &&
               pvn_now_s() > shared->stopped_at + o->stop_s) {
        shared->continued_at = pvn_now_s();
        kill(pid, SIGCONT);
        printf("# rank process %d was stopped for %.1f s\n", (int)pid,
               shared->continued_at - shared->stopped_at);
    }
}

/* Waits for the ranks. After the first failure the others have five seconds. Returns the worst
 * status. */
static int supervise(const struct nc_options *o, struct nc_shared *shared, pid_t *pids)
{
    int left = o->ranks, worst = NC_OK, victim = o->mode == NC_MODE_KILL ? o->ranks - 1 : -1;
    double stop = pvn_now_s() + o->timeout_s;
    while (left) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid > 0) {
            int rank = 0;
            while (pids[rank] != pid)
                rank++;
            pids[rank] = 0;
            left--;
            int rc = WIFEXITED(status) ? WEXITSTATUS(status) : NC_FAILED;
            if (rank == victim && atomic_load(&shared->victim_dead) && WIFSIGNALED(status))
                continue;
            if (!WIFEXITED(status))
                fprintf(stderr, "rank %d died of signal %d\n", rank, WTERMSIG(status));
            if (rc && stop > pvn_now_s() + 5)
                stop = pvn_now_s() + 5;
            if (rc && worst != NC_FAILED)
                worst = rc;
            continue;
        }
        if (victim >= 0 && pids[victim] && !atomic_load(&shared->victim_dead) &&
            atomic_load(&shared->progress) >= 20)
            kill_victim(shared, pids[victim]);
        if (o->stop_s && pids[o->ranks - 1])
            stop_for_a_time(o, shared, pids[o->ranks - 1]);
        if (pvn_now_s() > stop) {
            for (int i = 0; i < o->ranks; i++) {
                if (pids[i]) {
                    fprintf(stderr, "rank %d is stopped: it did not end in time\n", i);
                    kill(pids[i], SIGKILL);
                }
            }
            worst = worst == NC_SKIP ? NC_SKIP : NC_FAILED;
            stop = pvn_now_s() + 60;
        }
        usleep(2000);
    }
    return worst;
}

int main(int argc, char **argv)
{
    struct nc_options o = {.ranks = 2,
                           .op_timeout_s = 60,
                           .timeout_s = 300,
                           .cuda_lib = "libcuda.so.1",
                           .nccl_lib = "libnccl.so.2"};
    if (parse(&o, argc, argv))
        return NC_USAGE;
    struct nc_shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return NC_FAILED;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    pid_t pids[NC_MAX_RANKS] = {0};
    for (int i = 0; i < o.ranks; i++) {
        pids[i] = fork();
        if (pids[i] < 0) {
            perror("fork");
            for (int j = 0; j < i; j++)
                kill(pids[j], SIGKILL);
            return NC_FAILED;
        }
        if (pids[i] == 0)
            run_rank(&o, shared, i);
    }
    int rc = supervise(&o, shared, pids);
    if (rc == NC_OK && o.mode == NC_MODE_KILL && !atomic_load(&shared->victim_dead)) {
        fprintf(stderr, "no rank was killed: the test has shown nothing\n");
        rc = NC_FAILED;
    }
    if (rc == NC_OK && o.stop_s && shared->continued_at == 0) {
        fprintf(stderr, "no rank was stopped for %d s: the test has shown nothing\n", o.stop_s);
        rc = NC_FAILED;
    }
    printf("RESULT %s ranks=%d passed=%d failed=%d status=%d\n",
           o.mode == NC_MODE_CHECK   ? "check"
           : o.mode == NC_MODE_BENCH ? "bench"
                                     : "kill",
           o.ranks, atomic_load(&shared->passed), atomic_load(&shared->failed), rc);
    return rc;
}
