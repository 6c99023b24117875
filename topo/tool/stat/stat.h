/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: what its files share. The statistics files
 * themselves: plugin/stats/stat_layout.h. */
#ifndef PVN_TOPO_TOOL_STAT_H
#define PVN_TOPO_TOOL_STAT_H

#include "plugin/stats/stats_read.h"
#include "topo/tool/base/tool.h"

/* The command: the arguments behind its name; returns an exit status. */
int cmd_stat(struct tool *t, int argc, char **argv);

struct stat_list {
    struct pvn_stats *file;
    int n, cap;
    int unread; /* files that could not be read; said on standard error */
    bool here;  /* the files of this host, of now */
    bool saved; /* some were written by pvn-topo --json stat */
    /* Hosts that were looked at, with those that gave no answer. */
    const struct tool_answer *answer;
    int answers;
    bool twice_is_fine;         /* one process may be in several documents */
    char other_version[40];     /* of pvn-topo that wrote one of the documents */
    int *slot, slots, in_slots; /* stat_list_find's table */
};

/* The place of the next file; list->n is for the caller to raise. NULL without memory, which is said. */
struct pvn_stats *stat_list_next(struct stat_list *list);
/* The entry for the same file of the same host, or -1. */
int stat_list_find(struct stat_list *list, const struct pvn_stats *f);
void stat_list_free(struct stat_list *list);
struct json_t;
/* Adds the processes of a document; name: of its file or host, for messages. 0 or a negative errno. */
int stat_add_document(struct stat_list *list, const char *name, const struct json_t *doc);
/* Adds the processes of what pvn-topo --json stat wrote; - is standard input. 0; 1: it is no JSON,
 * as far as its first character says; or a negative errno: what is wrong is said. */
int stat_add_saved(struct stat_list *list, const char *path);

/* A comm's trouble. */
enum stat_trouble {
    STAT_FINE,
    STAT_STALLED, /* see below */
    STAT_FAILED,
    STAT_LOST /* its process is dead and had not closed it */
};

/* After this long a wait counts as a stall. Shorter ones are normal: a receiver waits while its
 * peer computes, a connection until its peer's process calls connect. */
#define STAT_STALLED_S 5.0
#define STAT_SETUP_S   30.0

/* A wait of a process for which a stalled one waits counts after this long: its host may have been looked at earlier. */
#define STAT_FOLLOWED_S 1.0

/* Seconds without a byte moved while requests are open, or without progress of connecting; 0: no
 * stall. */
double stat_stalled(const struct pvn_stats *f, const struct pvn_stat_row *r);

enum stat_trouble stat_trouble(const struct pvn_stats *f, const struct pvn_stat_row *r);
const char *stat_trouble_name(enum stat_trouble t);         /* "stalled", ... */
const char *stat_sealed_name(const struct pvn_stat_row *r); /* "none", "control", "data" */
bool stat_is_comm(const struct pvn_stat_row *r);            /* not a listener */
const char *stat_life_name(const struct pvn_stats *f);
/* True if it ran in another network namespace of this host, whose interfaces have the names of others; never for one
 * of a document, whose namespaces may be those of another host. */
bool stat_in_other_net(const struct pvn_stats *f);
/* "alive, sleeping" */
const char *stat_process_state(const struct pvn_stats *f);
/* Seconds from a stamp of the file to the time of reading; negative for a stamp of 0. */
double stat_age(const struct pvn_stats *f, uint64_t stamp);
/* Seconds since the epoch of a stamp of the file. */
double stat_wall(const struct pvn_stats *f, uint64_t stamp);
/* "node8 pid 812 at 192.0.2.8:4711", as much as is known. Returns buf. */
const char *stat_peer(const struct pvn_stat_row *r, char *buf, size_t len);

/* The looks of --hosts and --watch; an exit status. */
int stat_hosts(struct tool *t);
int stat_watch(struct tool *t, int argc, char **argv);
/* Hosts without an answer and, where no process waits for another, that this is so. */
void stat_print_hosts(const struct tool *t, const struct stat_list *list);
/* sysfs: where the adapters' counters are; NULL: of no host. An exit status. */
int stat_show(const struct tool *t, const struct stat_list *list, const char *sysfs);
int stat_status(const struct stat_list *list); /* the same without showing it */

/* Prometheus's text format; names without the prefix. */
#define STAT_PROM_PREFIX "nccl_pvrdma_"
void stat_prom_label(FILE *out, const char *name, const char *value);
void stat_prom_heading(FILE *out, const char *name, const char *type, const char *help);

void stat_print(const struct tool *t, const struct stat_list *list);
void stat_print_prom(const struct tool *t, const struct stat_list *list);
/* before: what the look before found, for --watch, or NULL. An exit status; takes adapters over. */
int stat_print_json(const struct tool *t, const struct stat_list *list, struct stat_list *before,
                    struct json_t *adapters);

#endif
