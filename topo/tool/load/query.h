/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo --hosts: what this program prints as JSON on each of many hosts. */
#ifndef PVN_TOPO_TOOL_QUERY_H
#define PVN_TOPO_TOOL_QUERY_H

#include "topo/hosts/host_list.h"
#include "topo/tool/base/tool.h"

struct tool_answer {
    const char *host;   /* as the list names it */
    struct json_t *doc; /* NULL: none */
    char reason[512];   /* why not, or what is missing in it; "" nothing */
    char remedy[256];
    int processes; /* stat: that were new in it */
};

struct tool_answers {
    struct pvn_topo_host_list hosts;
    struct tool_answer *list; /* one for each host */
    int n;
};

/* Reads the list of --hosts. TOOL_OK, or why not is said. */
int tool_hosts_read(const struct tool *t, struct tool_answers *a);
/* Runs pvn-topo with these arguments on each of them; kind: of the document that is expected. A
 * second call replaces the answers of the first. */
int tool_query(const struct tool *t, const char *arguments, const char *kind,
               struct tool_answers *a);
void tool_answers_free(struct tool_answers *a);

/* The document in a text, which may begin with what a login shell prints. NULL: reason and remedy
 * say why. */
struct json_t *tool_parse_document(const char *text, size_t len, const char *kind,
                                   struct tool_answer *a);
/* Hosts without an answer, those with the same reason together; to a stream. How many. */
int tool_print_unanswered(const struct tool *t, FILE *out, const struct tool_answer *list, int n);

#endif
