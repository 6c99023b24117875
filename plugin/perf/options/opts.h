/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The command line of pvn-perf, checked. */
#ifndef PVN_PERF_OPTS_H
#define PVN_PERF_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perf/workload/values.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PVN_PERF_MAX_PLUGINS  8
#define PVN_PERF_MAX_ENV      32
#define PVN_PERF_MAX_SIZES    64
#define PVN_PERF_MAX_NETNS    16
#define PVN_PERF_MAX_DEVS     16
#define PVN_PERF_MAX_CHANNELS 2048

#define PVN_PERF_STALL_WARN "NCCL_PVRDMA_STALL_WARN"

/* Kind of the messages' memory. */
enum pvn_perf_memory {
    PVN_PERF_PINNED_IF_POSSIBLE, /* the default: like NCCL's, if the kernel allows it */
    PVN_PERF_PINNED,
    PVN_PERF_MOVABLE, /* ordinary host memory */
    PVN_PERF_GPU
};

/* The collective that the ranks of a ring run. */
enum pvn_collective {
    PVN_ALLREDUCE,
    PVN_ALLGATHER,
    PVN_REDUCESCATTER,
    PVN_BROADCAST,
    PVN_SENDRECV,   /* every rank sends to the next one, as the stages of a pipeline do */
    PVN_ALLTOALL,   /* every rank sends the same amount to each rank (pairs.h) */
    PVN_ALLTOALLV,  /* every rank sends different amounts */
    PVN_PIPELINE,   /* a chain of stages: activations to the next one, gradients back */
    PVN_COLLECTIVES /* how many */
};

enum pvn_perf_mode {
    PVN_PERF_P2P,
    PVN_PERF_RING,
    PVN_PERF_SCALE,
    PVN_PERF_MESH,
    PVN_PERF_SERVE,
    PVN_PERF_PARAMS
};

/* pvn-perf's exit status. */
enum pvn_perf_exit {
    PVN_PERF_OK = 0,
    PVN_PERF_WRONG = 1, /* data was wrong, or a figure is worse than the baseline */
    PVN_PERF_USAGE = 2,
    PVN_PERF_FAILED = 3,        /* the plugin or the environment failed */
    PVN_PERF_INTERRUPTED = 128, /* plus the signal's number */
    PVN_PERF_HELP = -1          /* text was printed and nothing remains to do: status 0 */
};

struct pvn_perf_plugin {
    char name[32];
    char what[512]; /* path, or a name as pvn_netdrv_open takes it; "": the default */
    int abi;        /* 0: newest */
};

struct pvn_perf_env {
    char plugin[32]; /* "": all */
    char key[64];
    char value[256];
};

struct pvn_perf_opts {
    enum pvn_perf_mode mode;
    struct pvn_perf_plugin plugin[PVN_PERF_MAX_PLUGINS];
    int nplugins;
    struct pvn_perf_env env[PVN_PERF_MAX_ENV];
    int nenv;
    int ranks; /* 0: not given */
    int abi;   /* version of NCCL's interface; 0: the newest */
    char netns[PVN_PERF_MAX_NETNS][32];
    int nnetns;
    char dev[PVN_PERF_MAX_DEVS][32]; /* number or name, channel c uses dev[c % ndevs] */
    int ndevs;
    uint64_t size[PVN_PERF_MAX_SIZES]; /* bytes */
    int nsizes;
    char preset[16];   /* "": none */
    int layers;        /* layers of the preset; 0: all */
    int tokens;        /* preset: tokens in a micro batch of each rank */
    int per_peer;      /* channels of a pair; 0: as many as NCCL takes */
    int micro_batches; /* pipeline */
    enum pvn_collective collective;
    enum pvn_type type;
    int depth;
    int group;
    int channels;
    enum pvn_perf_memory memory;
    int gpu;       /* CUDA's number of the GPU; -1: the nearest */
    uint64_t slot; /* bytes */
    int steps;
    int slices;
    int no_sums; /* ring, scale */
    int iters;   /* 0: by time */
    int warmup;  /* -1: the mode's default */
    double time; /* seconds per point, if iters is 0 */
    int check;
    int latency, bandwidth; /* p2p: tests to run */
    double idle;            /* p2p: seconds to wait on silent comms instead; 0: no */
    int repeat;
    double timeout;
    int spin;
    double boot_timeout;
    char master[256]; /* "": from the environment */
    int port;         /* 0: from the environment */
    int traffic_class;
    double duration, interval; /* p2p, ring; p2p: seconds; 0: no */
    char json_lines[512];      /* "": not requested */
    int bidirectional;         /* p2p: bandwidth in both directions at once */
    char peer[256];      /* p2p: the server's host; serve: the address to listen on; "": none */
    int peer_port;       /* 0: the default */
    int served;          /* this is one end of a run between serve and its client */
    int wait_server;     /* the client waits --boot-timeout for the server to appear */
    int once;            /* serve: one client */
    uint64_t max_memory; /* serve: bytes that a client's buffers may take */
    double max_time;     /* serve: seconds that a client's run may take */
    char json[512], csv[512], plot[512]; /* "": not requested */
    char baseline[512];                  /* likewise */
    char make_key[512];                  /* likewise */
    int tolerance;                       /* percent, with baseline */
    int verbose;
    int quiet;
    uint64_t given; /* the options that were on the command line (opts_table.h) */
};

const char *pvn_collective_name(enum pvn_collective what); /* "allreduce" */
/* 1 if the run consists of sends and receives between pairs of ranks, not of steps on a ring. */
int pvn_opts_of_pairs(const struct pvn_perf_opts *o);

/*
 * Fills *o from the command line. Returns a pvn_perf_exit: OK to continue, HELP, or USAGE after the
 * reason was printed on stderr.
 */
int pvn_perf_opts_parse(struct pvn_perf_opts *o, int argc, char **argv);

/* Writes the NCCL_PVRDMA_STALL_WARN of the ranks: a third of --timeout, so that the plugin says why
 * nothing moves before a rank gives up. False if the variable is to stay as it is: the user has set
 * it, or the plugin's default is short enough. Called in the environment that --env makes. */
bool pvn_opts_stall_warn(const struct pvn_perf_opts *o, char *value, size_t len);

/* Converts "64K", "1.5M", "8G" (powers of 1024) to bytes. 0 or -EINVAL. */
int pvn_perf_parse_size(const char *s, uint64_t *bytes);

/* A number that is equal for equal measurements: ranks on several machines compare it. */
uint64_t pvn_perf_opts_token(const struct pvn_perf_opts *o);

#ifdef __cplusplus
}
#endif

#endif
