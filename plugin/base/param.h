/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The parameters. One table (param_table.c) is the source of parsing, range checks, the listing of
 * `--params`, the section of the manual page and the "did you mean" for unknown names.
 *
 * A parameter NAME is read from the environment variable NCCL_PVRDMA_NAME. If NCCL has a variable of the same
 * meaning, that variable is the parameter's alias and is used if NCCL_PVRDMA_NAME is unset. A new parameter
 * needs a field in struct pvn_params and a row in the table; a test checks that the two fit.
 *
 * A bad value of an NCCL_PVRDMA_ variable makes initialisation fail with an error. A bad value of an alias
 * gives a warning and the default, because the variable may be meant for NCCL's own transports. An unknown
 * NCCL_PVRDMA_ name gives a warning. An empty value counts as unset, as in NCCL. No function changes the
 * environment. */
#ifndef PVN_BASE_PARAM_H
#define PVN_BASE_PARAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

#define PVN_PARAM_PREFIX  "NCCL_PVRDMA_"
#define PVN_PARAM_STR_LEN 512 /* bytes of a text or list value with its final NUL */
#define PVN_PARAM_MAX     128 /* length of pvn_params.source: the most rows that the table may have */

#define PVN_TCP_USER_TIMEOUT_AUTO UINT64_MAX /* see pvn_path_limit */

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

/* Upper limit of RDMA_SHORT in bytes (SHORT_MAX in rdma_wire.h). */
enum { PVN_PARAM_RDMA_SHORT_MAX = 292 };

/* Sizes are in bytes, durations in nanoseconds. param_table.c has the meaning, range and default of each. */
struct pvn_params {
    /* choice of transports and devices */
    int transport; /* enum pvn_transport */
    bool strict;
    int vdevice;                           /* 0, 1; -1: if NCCL can place the members */
    char socket_ifname[PVN_PARAM_STR_LEN]; /* NCCL's syntax, see net-tcp/iface.h */
    int socket_family;                     /* AF_UNSPEC, AF_INET or AF_INET6 */
    char ib_hca[PVN_PARAM_STR_LEN];        /* NCCL's syntax */
    char rails[PVN_PARAM_STR_LEN];         /* "": detected; else see pvn_topo_nics_set_rails */

    /* TCP lane */
    int tcp_streams;                /* 0: the lane decides */
    int tcp_threads;                /* per process; -1: depends on processors and link speed */
    uint64_t tcp_chunk;             /* bytes */
    char tcp_cc[PVN_PARAM_STR_LEN]; /* "": the system's default */
    uint64_t tcp_notsent_lowat;     /* 0: the kernel's default */
    uint64_t tcp_sndbuf;            /* 0: the kernel's default */
    uint64_t tcp_rcvbuf;            /* 0: the kernel's default */
    uint64_t tcp_zerocopy_min;
    bool tcp_batch;

    bool shared_comms; /* ranks may share comms of RDMA devices */

    /* failover */
    int failover;              /* 0, 1; -1: if there is RDMA or another interface */
    uint64_t failover_timeout; /* ns */

    /* RDMA lane */
    uint64_t rdma_chunk; /* bytes; 0: tcp_chunk */
    int gid_index;       /* -1: both ends choose a pair */
    int roce_version;
    int addr_family;                    /* family of GIDs: AF_UNSPEC, AF_INET or AF_INET6 */
    char addr_range[PVN_PARAM_STR_LEN]; /* "": any; else ADDRESS/PREFIX */
    int service_level;                  /* -1: the device's default */
    int ib_timeout;                     /* ack time-out exponent, 4.096 us * 2^n */
    int ib_retry_cnt;
    int pkey; /* index into the port's table */
    int qps;
    int adaptive_routing; /* 0, 1; -1: depends on the link type */
    int rdma_mode;        /* enum pvn_rdma_mode_param */
    uint64_t rdma_poll;
    uint64_t rdma_short;
    int relaxed_ordering; /* enum pvn_ordering_mode of net-pvrdma/ordering.h */
    int gpu_mem;          /* enum pvn_gpu_mem_mode */
    int flush;            /* enum pvn_flush_mode */
    bool dmabuf;

    /* both lanes */
    int traffic_class; /* -1: not set */
    bool tc_force;

    /* the job's key, see seal/key.h */
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

    /* monitoring of established connections */
    uint64_t keepalive_idle; /* 0: no keepalive */
    uint64_t keepalive_intvl;
    int keepalive_cnt;
    uint64_t tcp_user_timeout; /* 0: the kernel's default; or PVN_TCP_USER_TIMEOUT_AUTO */
    uint64_t stall_warn;       /* 0: never */
    uint64_t stall_abort;      /* 0: never */

    char stats_dir
        [PVN_PARAM_STR_LEN]; /* "": the user's directory; "none": no file; see stats_dir.h */

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
    PVN_PARAM_INT,  /* int: decimal or 0x; also the row's words */
    PVN_PARAM_SIZE, /* uint64_t: bytes, or with k, M, G (powers of 1024; also "KiB" and "B") */
    /* uint64_t: with ns, us, ms, s, m (min), h, d; a number without a suffix is in the row's unit;
     * also the row's words */
    PVN_PARAM_DURATION,
    PVN_PARAM_ENUM,   /* int: one of the row's words */
    PVN_PARAM_STRING, /* char[PVN_PARAM_STR_LEN] */
    PVN_PARAM_LIST,   /* the same, separated by commas */
    PVN_PARAM_NETWORK /* the same: "" or ADDRESS/PREFIX (addr.h) */
};

struct pvn_param_word {
    const char *word; /* NULL ends a row's list; a value is printed as its first word */
    int value;
};

struct pvn_param_def {
    const char *name;  /* without the prefix */
    const char *alias; /* full name of NCCL's variable, or NULL */
    /* If the alias is a switch: the value for any number but 0, and the value for 0. NULL: the default. Both
     * NULL: the alias is no switch. */
    const char *alias_on, *alias_off;
    enum pvn_param_type type;
    const char *unit; /* unit of a number without suffix ("s", "us", "bytes") or NULL */
    const char *def;  /* the default as a user would write it */
    int64_t min, max; /* in the field's unit; unused for words and texts */
    /* ENUM: all values. INT and DURATION: special ones, which need not be in the range. NULL: none. */
    const struct pvn_param_word *words;
    size_t offset, size; /* of the field in struct pvn_params */
    const char *help;
};

const struct pvn_param_def *pvn_param_table(size_t *count);

/* Reads an environment (NULL-terminated array of "NAME=value" strings, like `environ`) into *out. Returns 0, or
 * -EINVAL with *err (fault USAGE). After an error *out has defaults for the bad parameter and for those that were
 * not read. Warnings go to the log. */
int pvn_params_read(struct pvn_params *out, char *const *envp, struct pvn_err *err);

/* Loads the parameters of the process from the environment. While they are loaded, another call changes nothing and
 * returns 0, so that all communicators use the same values. After pvn_params_unload, for which no comm may be left,
 * the next load reads the environment again. */
int pvn_params_load(struct pvn_err *err);
void pvn_params_unload(void);
/* Called in a forked child: unloads the parameters and resets the lock, which another thread of the parent may have
 * held. */
void pvn_params_after_fork(void);

/* The loaded parameters, or the defaults before the load; never NULL. The pointer is valid until unload. */
const struct pvn_params *pvn_params_get(void);

/* For tests: pvn_params_get returns `params` from now on; NULL ends this. */
void pvn_params_override(const struct pvn_params *params);

/* The source of a parameter's value. `name` is without the prefix. */
enum pvn_param_source pvn_param_source(const struct pvn_params *params, const char *name);

/* Writes the variable that has set a parameter, and its value, as "NCCL_IB_GID_INDEX=3"; "" for the default. `name` is
 * without the prefix. Returns buf. */
const char *pvn_param_setting(const struct pvn_params *params, const char *name, char *buf,
                              size_t size);

/* A row's value in `params` as a user would write it: "512K", "30 s", "auto". */
const char *pvn_param_format(const struct pvn_param_def *def, const struct pvn_params *params,
                             char *buf, size_t size);

/* A row's range as text: "0 to 16", "one of: auto, rdma, tcp". */
const char *pvn_param_range(const struct pvn_param_def *def, char *buf, size_t size);

/* Prints the first part of `--params`: every row with value, source, default, range, alias and help. */
void pvn_params_print(FILE *out, const struct pvn_params *params);

/* Prints the table as the body of a man page section (roff, one .TP per row), with defaults only. */
void pvn_params_print_roff(FILE *out);

/* The name in the table that is most similar to an unknown name (without prefix); NULL if none is similar. */
const char *pvn_param_suggest(const char *name);

#endif
