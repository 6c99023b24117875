/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The parameters: one table (param_table.c) from which come parsing, range checks, the listing of
 * `--params`, the manual pages' section and the "did you mean" for unknown names.
 *
 * A parameter NAME is read from the environment variable NCCL_PVRDMA_NAME; where NCCL has a
 * variable of the same meaning, that one is its alias and counts when ours is unset. To add a
 * parameter: a field in struct pvn_params and a row in the table; a test checks that the two fit.
 *
 * A bad value of an NCCL_PVRDMA_ variable refuses initialisation with a sentence. A bad value of an
 * alias gives a warning and the default, for the variable may be meant for NCCL's own transports.
 * An unknown NCCL_PVRDMA_ name gives a warning. An empty value counts as unset, as in NCCL. Nothing
 * here ever changes the environment. */
#ifndef PVN_BASE_PARAM_H
#define PVN_BASE_PARAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

#define PVN_PARAM_PREFIX  "NCCL_PVRDMA_"
#define PVN_PARAM_STR_LEN 512 /* bytes of a text or list value with its end */
#define PVN_PARAM_MAX     128 /* rows whose source struct pvn_params can record */

enum pvn_transport { PVN_TRANSPORT_AUTO = 0, PVN_TRANSPORT_RDMA, PVN_TRANSPORT_TCP };

/* NCCL_PVRDMA_GPU_MEM and NCCL_PVRDMA_FLUSH. */
enum pvn_gpu_mem_mode {
    PVN_GPU_MEM_AUTO = 0,
    PVN_GPU_MEM_OFF,
    PVN_GPU_MEM_PEERMEM,
    PVN_GPU_MEM_DMABUF
};
enum pvn_flush_mode {
    PVN_FLUSH_MODE_AUTO = 0,
    PVN_FLUSH_MODE_READ,
    PVN_FLUSH_MODE_CUDA,
    PVN_FLUSH_MODE_NONE
};

enum pvn_rdma_mode_param {
    PVN_RDMA_MODE_AUTO = 0,
    PVN_RDMA_MODE_RECORD,
    PVN_RDMA_MODE_IMM,
    PVN_RDMA_MODE_SEND
};

/* NCCL_PVRDMA_ENCRYPT. */
enum pvn_encrypt { PVN_ENCRYPT_AUTO = 0, PVN_ENCRYPT_CONTROL, PVN_ENCRYPT_ALL };

enum pvn_param_source {
    PVN_PARAM_FROM_DEFAULT = 0,
    PVN_PARAM_FROM_ENV,  /* NCCL_PVRDMA_NAME */
    PVN_PARAM_FROM_ALIAS /* NCCL's own variable */
};

/* RDMA_SHORT: the longest message that can be a short one (rdma_wire.h). */
enum { PVN_PARAM_RDMA_SHORT_MAX = 292 };

/* Sizes are bytes, durations nanoseconds. Meaning, range and default of each: param_table.c. */
struct pvn_params {
    /* what to use */
    int transport; /* enum pvn_transport */
    bool strict;
    int vdevice;                           /* -1: where NCCL can place the members, 0, 1 */
    char socket_ifname[PVN_PARAM_STR_LEN]; /* NCCL's syntax, see net-tcp/iface.h */
    int socket_family;                     /* AF_UNSPEC, AF_INET or AF_INET6 */
    char ib_hca[PVN_PARAM_STR_LEN];        /* NCCL's syntax */
    char rails[PVN_PARAM_STR_LEN];         /* "": found; else as pvn_topo_nics_set_rails reads it */

    /* TCP lane */
    int tcp_streams;                /* 0: the lane decides */
    int tcp_threads;                /* of the process; -1: by processors and link */
    uint64_t tcp_chunk;             /* bytes */
    char tcp_cc[PVN_PARAM_STR_LEN]; /* "": the system's */
    uint64_t tcp_notsent_lowat;     /* 0: the kernel's */
    uint64_t tcp_sndbuf;            /* 0: the kernel's */
    uint64_t tcp_rcvbuf;            /* 0: the kernel's */
    uint64_t tcp_zerocopy_min;
    bool tcp_batch;

    bool shared_comms; /* ranks may share comms of RDMA devices */

    /* failover */
    int failover;              /* -1: where there is RDMA or another interface, 0, 1 */
    uint64_t failover_timeout; /* ns */

    /* RDMA lane */
    uint64_t rdma_chunk; /* bytes; 0: tcp_chunk */
    int gid_index;       /* -1: chosen with the peer */
    int roce_version;
    int addr_family;                    /* of a GID: AF_UNSPEC, AF_INET or AF_INET6 */
    char addr_range[PVN_PARAM_STR_LEN]; /* "": any; else ADDRESS/PREFIX */
    int service_level;                  /* -1: the device's default */
    int ib_timeout;                     /* ack time-out exponent, 4.096 us * 2^n */
    int ib_retry_cnt;
    int pkey; /* index into the port's table */
    int qps;
    int adaptive_routing; /* -1: by link type, 0, 1 */
    int rdma_mode;        /* enum pvn_rdma_mode_param */
    uint64_t rdma_poll;
    uint64_t rdma_short;
    int relaxed_ordering; /* enum pvn_ordering_mode of net-pvrdma/ordering.h */
    int gpu_mem;          /* enum pvn_gpu_mem_mode */
    int flush;            /* enum pvn_flush_mode */
    bool dmabuf;

    /* both */
    int traffic_class; /* -1: not set */
    bool tc_force;

    /* a key of both ends, see seal/key.h */
    char key_file[PVN_PARAM_STR_LEN]; /* "": none */
    int encrypt;                      /* enum pvn_encrypt */
    bool kernel_tls;

    /* deadlines of connecting and closing */
    uint64_t connect_timeout;
    uint64_t accept_timeout; /* 0: none */
    uint64_t seal_timeout;
    uint64_t hello_timeout;
    uint64_t offer_timeout;
    uint64_t bind_timeout;
    uint64_t verify_timeout;
    uint64_t ready_timeout;

    /* watching what is up */
    uint64_t keepalive_idle; /* 0: no keepalive */
    uint64_t keepalive_intvl;
    int keepalive_cnt;
    uint64_t tcp_user_timeout; /* 0: the kernel's */
    uint64_t stall_warn;       /* 0: never */
    uint64_t stall_abort;      /* 0: never */

    char stats_dir[PVN_PARAM_STR_LEN]; /* "": the user's own; "none": no file; see stats_dir.h */

    char sysfs_root[PVN_PARAM_STR_LEN];

    /* libraries loaded at run time */
    char verbs_lib[PVN_PARAM_STR_LEN];
    char cuda_lib[PVN_PARAM_STR_LEN];
    char nl_lib[PVN_PARAM_STR_LEN];
    char ssl_lib[PVN_PARAM_STR_LEN];

    uint8_t source[PVN_PARAM_MAX]; /* enum pvn_param_source, by row */
};

enum pvn_param_type {
    PVN_PARAM_BOOL, /* bool: 0/1, no/yes, off/on, false/true */
    PVN_PARAM_INT,  /* int: decimal or 0x; a row's words besides */
    PVN_PARAM_SIZE, /* uint64_t: bytes, or with k, M, G (powers of 1024, "KiB" and "B" too) */
    PVN_PARAM_DURATION, /* uint64_t: with ns, us, ms, s, m (min), h, d; a bare number counts in the row's unit
                         */
    PVN_PARAM_ENUM,   /* int: one of the row's words */
    PVN_PARAM_STRING, /* char[PVN_PARAM_STR_LEN] */
    PVN_PARAM_LIST    /* the same, separated by commas */
};

struct pvn_param_word {
    const char *word; /* NULL ends a row's list; the first word for a value is the one printed */
    int value;
};

struct pvn_param_def {
    const char *name;  /* without the prefix */
    const char *alias; /* NCCL's variable, whole, or NULL */
    /* The alias is a switch: what any number but 0 stands for, and what 0 does. NULL: the default;
     * both NULL: it is no switch. */
    const char *alias_on, *alias_off;
    enum pvn_param_type type;
    const char *unit;                   /* of a bare duration ("s", "us"); "bytes"; or NULL */
    const char *def;                    /* the default as a user would write it */
    int64_t min, max;                   /* in the field's own unit; unused for words and texts */
    const struct pvn_param_word *words; /* ENUM: all values; INT: names for special ones; or NULL */
    size_t offset, size;                /* of the field in struct pvn_params */
    const char *help;
};

const struct pvn_param_def *pvn_param_table(size_t *count);

/* Reads an environment (NULL-terminated "NAME=value" strings, as `environ`) into *out. 0, or
 * -EINVAL with a sentence in *err (fault USAGE); *out then holds defaults for what was wrong or not
 * read. Warnings go to the log. */
int pvn_params_read(struct pvn_params *out, char *const *envp, struct pvn_err *err);

/* The process's parameters. pvn_params_load reads the environment once; while they are loaded a
 * second call changes nothing and returns 0, so that several communicators see the same values.
 * After pvn_params_unload (no comm may be left) the next load reads again. */
int pvn_params_load(struct pvn_err *err);
void pvn_params_unload(void);
/* In a forked child, where another thread of the parent may have been loading them: unloads them. */
void pvn_params_after_fork(void);

/* Never NULL: the loaded values, before that the defaults. The pointer stays valid until unload. */
const struct pvn_params *pvn_params_get(void);

/* pvn_params_get returns this from now on, for tests that need particular values; NULL ends it. */
void pvn_params_override(const struct pvn_params *params);

/* The source of the value of a parameter (its name without the prefix). */
enum pvn_param_source pvn_param_source(const struct pvn_params *params, const char *name);

/* A row's value in `params` as a user would write it: "512K", "30 s", "auto". */
const char *pvn_param_format(const struct pvn_param_def *def, const struct pvn_params *params,
                             char *buf, size_t size);

/* "0 to 16", "one of: auto, rdma, tcp": a row's range as text. */
const char *pvn_param_range(const struct pvn_param_def *def, char *buf, size_t size);

/* Every row with value, source, default, range, alias and help: what `--params` prints. */
void pvn_params_print(FILE *out, const struct pvn_params *params);

/* The table as the body of a man page section (roff, one .TP per row), defaults only. */
void pvn_params_print_roff(FILE *out);

/* The name in the table nearest to an unknown one (without prefix), or NULL when none is near. */
const char *pvn_param_suggest(const char *name);

#endif
