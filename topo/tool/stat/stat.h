/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: declarations that its files share. plugin/stats/stat_layout.h describes the
 * statistics files. */
#ifndef PVN_TOPO_TOOL_STAT_H
#define PVN_TOPO_TOOL_STAT_H

#include "plugin/stats/stats_read.h"
#include "topo/tool/base/tool.h"

/* The command; argv are the arguments after its name. Returns an exit status. */
int cmd_stat(struct tool *t, int argc, char **argv);

struct stat_list {
    struct pvn_stats *file;
    int n, cap;
    int unread; /* files that could not be read; reported on standard error */
    bool here;  /* the files are this host's current ones */
    bool saved; /* some were written by pvn-topo --json stat */
    /* The hosts that were queried, including those without an answer. */
    const struct tool_answer *answer;
    int answers;
    bool twice_is_fine;         /* a process may be in several documents without a warning */
    char other_version[40];     /* version of another pvn-topo that wrote one of the documents */
    int *slot, slots, in_slots; /* stat_list_find's table */
};

/* The entry for the next file; the caller increments list->n. NULL, with a message, if memory is
 * short. */
struct pvn_stats *stat_list_next(struct stat_list *list);
/* Index of the entry for the same file of the same host, or -1. */
int stat_list_find(struct stat_list *list, const struct pvn_stats *f);
void stat_list_free(struct stat_list *list);
struct json_t;
/* Adds the processes of a document; name: its file or host, for messages. 0 or a negative errno. */
int stat_add_document(struct stat_list *list, const char *name, const struct json_t *doc);
/* Adds the processes of a file that pvn-topo --json stat wrote; - is standard input. 0; 1 if the
 * first character shows that it is no JSON; or a negative errno after a message. */
int stat_add_saved(struct stat_list *list, const char *path);

/* A comm's trouble. */
enum stat_trouble {
    STAT_FINE,
    STAT_STALLED, /* see below */
    STAT_FAILED,
    STAT_LOST /* its process died without closing it */
};

/* A wait of this length counts as a stall. Shorter ones are normal: a receiver waits while its peer
 * computes, and a connection until its peer's process calls connect. */
#define STAT_STALLED_S 5.0
#define STAT_SETUP_S   30.0

/* A wait of this length counts if a stalled process waits for the waiting process, because that
 * host may have been read earlier. */
#define STAT_FOLLOWED_S 1.0

/* Seconds without a byte moved while requests are open, or without progress of a connection's
 * set-up; 0: no stall. */
double stat_stalled(const struct pvn_stats *f, const struct pvn_stat_row *r);

enum stat_trouble stat_trouble(const struct pvn_stats *f, const struct pvn_stat_row *r);
const char *stat_trouble_name(enum stat_trouble t);         /* "stalled", ... */
const char *stat_sealed_name(const struct pvn_stat_row *r); /* "none", "control", "data" */
bool stat_is_comm(const struct pvn_stat_row *r);            /* not a listener */
const char *stat_life_name(const struct pvn_stats *f);
/* True if the process ran in another network namespace of this host, whose interfaces may have the
 * same names. Never true for a process from a document, whose namespaces may be those of another
 * host. */
bool stat_in_other_net(const struct pvn_stats *f);
/* "alive, sleeping" */
const char *stat_process_state(const struct pvn_stats *f);
/* Seconds between a time stamp of the file and the time of reading; negative for a stamp of 0. */
double stat_age(const struct pvn_stats *f, uint64_t stamp);
/* A time stamp of the file as seconds since the epoch. */
double stat_wall(const struct pvn_stats *f, uint64_t stamp);
/* True if the addresses of the process's machine are known. Older releases do not write them. */
bool stat_has_addresses(const struct pvn_stats *f);
/* True if the process's machine has this address ("ADDRESS:PORT"; any port). */
bool stat_has_address(const struct pvn_stats *f, const char *addr);
/* True if the addresses of both are known and none is the same: the processes are on different
 * machines, or in different network namespaces. */
bool stat_are_apart(const struct pvn_stats *a, const struct pvn_stats *b);
/* "node8 pid 812 at 192.0.2.8:4711", with the parts that are known. Returns buf. */
const char *stat_peer(const struct pvn_stat_row *r, char *buf, size_t len);

/* The command with --hosts or --watch. Returns an exit status. */
int stat_hosts(struct tool *t);
int stat_watch(struct tool *t, int argc, char **argv);
/* Prints the hosts without an answer and, if no process waits for another, that this is so. */
void stat_print_hosts(const struct tool *t, const struct stat_list *list);
/* Shows the list. sysfs: the directory with the adapters' counters; NULL: show no counters. Returns
 * an exit status. */
int stat_show(const struct tool *t, const struct stat_list *list, const char *sysfs);
int stat_status(const struct stat_list *list); /* the exit status only */

/* Prometheus's text format; names without the prefix. */
#define STAT_PROM_PREFIX "nccl_pvrdma_"
void stat_prom_label(FILE *out, const char *name, const char *value);
void stat_prom_heading(FILE *out, const char *name, const char *type, const char *help);

void stat_print(const struct tool *t, const struct stat_list *list);
void stat_print_prom(const struct tool *t, const struct stat_list *list);
/* before: the previous list, for --watch, or NULL. Takes ownership of adapters. Returns an exit
 * status. */
int stat_print_json(const struct tool *t, const struct stat_list *list, struct stat_list *before,
                    struct json_t *adapters);

#endif
