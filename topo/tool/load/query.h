/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo --hosts: runs this program on many hosts and collects the JSON that it prints. */
#ifndef PVN_TOPO_TOOL_QUERY_H
#define PVN_TOPO_TOOL_QUERY_H

#include "topo/hosts/host_list.h"
#include "topo/tool/base/tool.h"

struct tool_answer {
    const char *host;   /* its name in the list */
    struct json_t *doc; /* NULL: none */
    char reason[512];   /* why there is none, or what it lacks; "" if complete */
    char remedy[256];
    int processes; /* stat: processes that were new in it */
};

struct tool_answers {
    struct pvn_topo_host_list hosts;
    struct tool_answer *list; /* one for each host */
    int n;
};

/* Reads the list of --hosts. Returns TOOL_OK, or prints the error. */
int tool_hosts_read(const struct tool *t, struct tool_answers *a);
/* Runs pvn-topo with these arguments on each host; kind: the kind of document that is expected. A
 * second call replaces the answers of the first. */
int tool_query(const struct tool *t, const char *arguments, const char *kind,
               struct tool_answers *a);
void tool_answers_free(struct tool_answers *a);

/* Finds the document in a text, which may begin with the output of a login shell. NULL: the
 * answer's reason and remedy say why. */
struct json_t *tool_parse_document(const char *text, size_t len, const char *kind,
                                   struct tool_answer *a);
/* Prints the hosts without an answer to a stream, those with the same reason together. Returns
 * their number. */
int tool_print_unanswered(const struct tool *t, FILE *out, const struct tool_answer *list, int n);

#endif
