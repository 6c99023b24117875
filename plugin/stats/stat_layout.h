/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of the statistics file: a header, then one row per comm. A process writes its own file
 * (stats.h), others read it (stats_read.h). It has only fixed-width numbers and terminated texts,
 * so that any program on the same machine can read it; the byte order is the machine's.
 *
 * Times are ns of CLOCK_MONOTONIC; 0: never. mono_ns and real_ns of the header were read together,
 * to convert times into wall-clock time.
 *
 * A row is a sequence lock: seq is odd while its owner writes. A row whose seq stays odd belongs to
 * a process that was killed or stopped in the middle of writing it. Its live counters are outside
 * that lock: another thread of the owner copies them there one by one.
 */
#ifndef PVN_STATS_STAT_LAYOUT_H
#define PVN_STATS_STAT_LAYOUT_H

#include <stdint.h>

#include "base/live.h"

#define PVN_STAT_MAGIC "PVNSTAT" /* eight bytes with its terminating zero */

enum {
    PVN_STAT_VERSION = 6, /* raised with every change below pvn_stat_ident */
    PVN_STAT_ROWS = 1024, /* comms and listeners of a process that have a row at once */
    PVN_STAT_GROW = 32,   /* rows by which the file grows */
    PVN_STAT_TOTALS = 16  /* kinds of comms whose sums outlive their rows */
};

enum pvn_stat_phase {
    PVN_STAT_LISTEN = 1, /* a listener: accept waits for a peer */
    PVN_STAT_SETUP,      /* the state's name says how far */
    PVN_STAT_UP,
    PVN_STAT_FAILED, /* text: the reason */
    PVN_STAT_CLOSED
};

/* How much of a comm is sealed with the job's key. */
enum pvn_stat_sealed {
    PVN_STAT_SEALED_NONE = 0, /* also written by releases without keys */
    PVN_STAT_SEALED_CONTROL,  /* the control connection */
    PVN_STAT_SEALED_DATA      /* and the data */
};

/* This part is the same in every version, so that a reader of another version can still say whose
 * file it is. */
struct pvn_stat_ident {
    char magic[8]; /* stored last: a file without it is incomplete */
    uint32_t version;
    uint32_t head_bytes, row_bytes, max_rows;
    uint64_t pid;    /* as the process sees itself */
    uint64_t start;  /* field 22 of /proc/PID/stat: distinguishes a reused pid */
    uint64_t pid_ns; /* inode of /proc/PID/ns/pid */
    char boot_id[40];
    char host[64];
};

/* Sums over closed comms whose rows were used again, per device, direction and set of transports.
 * The last entry, with the device "others", takes all comms for which no entry is left. */
struct pvn_stat_total {
    char device[64]; /* "": this entry and all behind it are unused */
    uint32_t sender;
    uint32_t via; /* PVN_VIA_ bits (stat_via.h) */
    uint64_t comms, msgs, bytes, chunks, unexpected, lane_full, empty_polls;
    uint64_t doorbells_send, doorbells_recv, doorbells_empty, retransmits;
    uint64_t failovers, failbacks, replayed;
};

struct pvn_stat_head {
    struct pvn_stat_ident id;
    uint64_t mono_ns, real_ns; /* when the file was made, on both clocks */
    uint64_t touched_ns;       /* when a row was last written */
    uint64_t comms;            /* opened so far */
    uint32_t rows;             /* rows that the file has room for now */
    uint32_t open;             /* comms and listeners that exist */
    uint32_t failed;           /* comms that have failed so far */
    uint32_t untracked;        /* comms that found no row */
    uint32_t abi;              /* version of NCCL's interface that came first */
    uint32_t net_ns;           /* inode of /proc/PID/ns/net; 0: not known */
    char plugin[32];           /* the plugin's version */
    char command[16];          /* the process's name */
    char rank[16];             /* "" if no launcher says it */
    char rank_from[40];        /* the variable that says it */
    char addrs[320];           /* IP addresses of its devices, each behind a blank; "": not known */
    uint64_t totals_seq;       /* odd while a row's numbers are added to the totals */
    struct pvn_stat_total total[PVN_STAT_TOTALS];
};

/* Bits of pvn_stat_counts.known, for counters that not every lane has. */
enum { PVN_STAT_KNOWS_DOORBELLS = 1, PVN_STAT_KNOWS_RETRANSMITS = 2 };

struct pvn_stat_counts {
    uint64_t look_ns;    /* when NCCL's calls last came here: the numbers are of then */
    uint64_t moved_ns;   /* when bytes last moved */
    uint64_t stuck_ns;   /* since when nothing moves though requests are open; 0: not stuck */
    uint64_t open;       /* open requests; row.live has later values of this and the next three */
    uint64_t msgs;       /* completed sends or receives */
    uint64_t bytes;      /* bytes of these messages */
    uint64_t flushes;    /* completed flushes of received data */
    uint64_t chunks;     /* posted (sender) or arrived (receiver) */
    uint64_t unexpected; /* messages that came before a receive with their tag */
    uint64_t lane_full;  /* posts that a lane had no room for */
    uint64_t empty_polls;
    uint64_t known;
    uint64_t doorbells_send, doorbells_recv, doorbells_empty; /* doorbells, by their cause */
    uint64_t retransmits;                                     /* TCP segments */
    uint64_t failovers;                                       /* lanes lost and replaced */
    uint64_t failbacks;                                       /* returns to better lanes */
    uint64_t replayed;   /* messages sent again on other lanes */
    uint64_t changed_ns; /* when the lanes were last replaced */
};

struct pvn_stat_row {
    uint64_t seq;
    uint64_t id;     /* number of the comm in its process, from 1; 0: never used */
    uint32_t phase;  /* enum pvn_stat_phase */
    uint32_t sender; /* 1 sends, 0 receives */
    uint32_t peer_pid;
    uint32_t sealed;            /* enum pvn_stat_sealed */
    uint64_t born_ns, state_ns; /* when the comm began; when its present state began */
    uint64_t ended_ns;          /* when it was closed; the phase stays FAILED if it had failed */
    struct pvn_stat_counts n;
    char state[16]; /* "HELLO", "UP", ... */
    char device[64];
    char peer_host[64]; /* "" until the peer's HELLO */
    char peer_addr[80];
    char lanes[384];
    char text[648]; /* SETUP: what is waited for; UP and stuck: which end has to act; FAILED: why */
    union {         /* in a cache line of its own */
        struct pvn_live live;
        char line[64];
    };
};

#endif
