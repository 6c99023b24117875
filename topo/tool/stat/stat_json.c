/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat --json: the "processes" of pvn-topo.schema.json. */
#include "topo/tool/stat/stat_job.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "topo/tool/base/json.h"
#include "topo/tool/stat/stat_grown.h"
#include "topo/tool/stat/stat_hidden.h"
#include "topo/tool/stat/stat_rates.h"

static json_t *text_or_null(const char *s)
{
    return s[0] ? json_string(s) : json_null();
}

static json_t *number(uint64_t v)
{
    return json_integer((json_int_t)v);
}

static json_t *age(const struct pvn_stats *f, uint64_t stamp)
{
    /* Ages have microseconds, however large they are, because rates are computed from
     * differences. */
    return stamp ? json_real(round(stat_age(f, stamp) * 1e6) / 1e6) : json_null();
}

static void put_counts(json_t *o, const struct pvn_stat_counts *n)
{
    bool counted = (n->known & PVN_STAT_KNOWS_DOORBELLS) != 0;
    json_t *doorbells = counted ? json_object() : json_null();
    json_object_set_new(o, "messages", number(n->msgs));
    json_object_set_new(o, "bytes", number(n->bytes));
    json_object_set_new(o, "chunks", number(n->chunks));
    json_object_set_new(o, "requests_open", number(n->open));
    json_object_set_new(o, "unexpected", number(n->unexpected));
    json_object_set_new(o, "lane_full", number(n->lane_full));
    json_object_set_new(o, "empty_polls", number(n->empty_polls));
    if (counted) {
        json_object_set_new(doorbells, "send", number(n->doorbells_send));
        json_object_set_new(doorbells, "recv", number(n->doorbells_recv));
        json_object_set_new(doorbells, "empty_poll", number(n->doorbells_empty));
    }
    json_object_set_new(o, "doorbells", doorbells);
    json_object_set_new(o, "tcp_retransmits",
                        n->known & PVN_STAT_KNOWS_RETRANSMITS ? number(n->retransmits)
                                                              : json_null());
    json_object_set_new(o, "failovers", number(n->failovers));
    json_object_set_new(o, "failbacks", number(n->failbacks));
    json_object_set_new(o, "replayed", number(n->replayed));
}

static json_t *comm(const struct pvn_stats *f, const struct pvn_stat_row *r)
{
    enum stat_trouble trouble = stat_trouble(f, r);
    json_t *o = json_object();
    json_object_set_new(o, "comm", number(r->id));
    json_object_set_new(o, "kind",
                        json_string(!stat_is_comm(r) ? "listener"
                                    : r->sender      ? "send"
                                                     : "recv"));
    json_object_set_new(o, "state", json_string(r->state));
    json_object_set_new(o, "closed", json_boolean(r->ended_ns != 0));
    json_object_set_new(
        o, "trouble", trouble == STAT_FINE ? json_null() : json_string(stat_trouble_name(trouble)));
    json_object_set_new(o, "text", text_or_null(r->text));
    json_object_set_new(o, "device", json_string(r->device));
    json_object_set_new(o, "peer_host", text_or_null(r->peer_host));
    json_object_set_new(o, "peer_pid", r->peer_pid ? number(r->peer_pid) : json_null());
    json_object_set_new(o, "peer_address", text_or_null(r->peer_addr));
    json_object_set_new(o, "lanes", text_or_null(r->lanes));
    json_object_set_new(o, "sealed",
                        stat_is_comm(r) ? json_string(stat_sealed_name(r)) : json_null());
    json_object_set_new(o, "born_s_ago", age(f, r->born_ns));
    json_object_set_new(o, "in_state_s", age(f, r->state_ns));
    json_object_set_new(o, "moved_s_ago", age(f, r->n.moved_ns));
    json_object_set_new(o, "last_call_s_ago", age(f, r->n.look_ns));
    json_object_set_new(o, "stalled_s",
                        stat_stalled(f, r) > 0 ? json_real(stat_stalled(f, r)) : json_null());
    json_object_set_new(o, "lanes_changed_s_ago", age(f, r->n.changed_ns));
    json_object_set_new(o, "partial", json_boolean(r->seq != 0));
    put_counts(o, &r->n);
    return o;
}

static json_t *per_second(const struct stat_rates *s, double n, bool counted)
{
    return counted ? json_real(round(n / s->seconds * 1e3) / 1e3) : json_null();
}

/* Rates of a process; null if there is no earlier snapshot of it. */
static json_t *rates(const struct pvn_stats *f, const struct pvn_stats *old)
{
    struct stat_rates s = stat_rates_of(f, old);
    if (s.seconds <= 0)
        return json_null();
    json_t *o = json_object();
    json_object_set_new(o, "seconds", json_real(round(s.seconds * 1e6) / 1e6));
    json_object_set_new(o, "bytes_sent", per_second(&s, s.sent, true));
    json_object_set_new(o, "bytes_received", per_second(&s, s.received, true));
    json_object_set_new(o, "messages", per_second(&s, s.messages, true));
    json_object_set_new(o, "tcp_retransmits",
                        per_second(&s, s.retransmits, s.known & PVN_STAT_KNOWS_RETRANSMITS));
    json_object_set_new(o, "doorbells",
                        per_second(&s, s.doorbells, s.known & PVN_STAT_KNOWS_DOORBELLS));
    json_object_set_new(o, "empty_polls", per_second(&s, s.empty_polls, true));
    return o;
}

static json_t *addresses(const struct pvn_stats *f)
{
    json_t *list = json_array();
    const char *at = f->head.addrs;
    while ((at = strchr(at, ' '))) {
        at++;
        json_array_append_new(list, json_stringn(at, strcspn(at, " ")));
    }
    return list;
}

static json_t *process(const struct pvn_stats *f)
{
    const struct pvn_stat_head *h = &f->head;
    json_t *o = json_object(), *comms = json_array();
    json_object_set_new(o, "file", json_string(f->path));
    json_object_set_new(o, "pid", number(h->id.pid));
    json_object_set_new(o, "host", json_string(h->id.host));
    json_object_set_new(o, "command", json_string(h->command));
    json_object_set_new(o, "rank", text_or_null(h->rank));
    json_object_set_new(o, "rank_from", text_or_null(h->rank_from));
    json_object_set_new(o, "life", json_string(stat_life_name(f)));
    json_object_set_new(o, "state", text_or_null(stat_process_state(f)));
    json_object_set_new(o, "plugin", json_string(h->plugin));
    json_object_set_new(o, "interface", number(h->abi));
    json_object_set_new(o, "network_namespace", h->net_ns ? number(h->net_ns) : json_null());
    json_object_set_new(o, "addresses", addresses(f));
    json_object_set_new(o, "began_s_ago", age(f, h->mono_ns));
    json_object_set_new(o, "written_s_ago", age(f, h->touched_ns));
    json_object_set_new(o, "opened", number(h->comms));
    json_object_set_new(o, "failed", number(h->failed));
    json_object_set_new(o, "untracked", number(h->untracked));
    for (int i = 0; i < f->nrows; i++)
        json_array_append_new(comms, comm(f, &f->row[i]));
    json_object_set_new(o, "comms", comms);
    return o;
}

static json_t *awaited(const struct stat_job *job, const struct stat_root *root)
{
    json_t *o = json_object(), *processes = json_array();
    char why[512];
    for (int v = 0; v < job->nodes; v++) {
        const struct stat_node *n = &job->node[v];
        json_t *one;
        if (n->circle != root->circle)
            continue;
        one = json_object();
        json_object_set_new(one, "host", json_string(n->host));
        json_object_set_new(one, "pid", number(n->pid));
        json_object_set_new(one, "rank", n->file ? text_or_null(n->file->head.rank) : json_null());
        json_array_append_new(processes, one);
    }
    stat_job_why(job, root, why, sizeof(why));
    json_object_set_new(o, "processes", processes);
    json_object_set_new(o, "waiting", json_integer(root->waiting));
    json_object_set_new(o, "text", json_string(why));
    return o;
}

static json_t *hosts(const struct stat_list *list)
{
    json_t *all = list->answers ? json_array() : NULL;
    for (int i = 0; i < list->answers; i++) {
        const struct tool_answer *a = &list->answer[i];
        json_t *o = json_object();
        json_object_set_new(o, "host", json_text(a->host));
        json_object_set_new(o, "answered", json_boolean(a->doc != NULL));
        json_object_set_new(o, "processes", json_integer(a->processes));
        json_object_set_new(o, "problem", a->reason[0] ? json_text(a->reason) : json_null());
        json_object_set_new(o, "remedy", a->remedy[0] ? json_text(a->remedy) : json_null());
        json_object_set(o, "unreadable", json_object_get(a->doc, "unreadable")); /* or no key */
        json_object_set(o, "adapters", stat_grown_adapters(a)); /* with the growth; NULL: no key */
        json_array_append_new(all, o);
    }
    return all;
}

int stat_print_json(const struct tool *t, const struct stat_list *list, struct stat_list *before,
                    json_t *adapters)
{
    json_t *all = json_array(), *roots = json_array();
    struct stat_job job;
    if (stat_job_make(list, &job) < 0)
        tool_error("out of memory for the waits of %d processes", list->n);
    for (int i = 0; i < list->n; i++) {
        json_t *one = process(&list->file[i]);
        int old = before ? stat_list_find(before, &list->file[i]) : -1;
        if (before)
            json_object_set_new(one, "rates",
                                rates(&list->file[i], old < 0 ? NULL : &before->file[old]));
        json_array_append_new(all, one);
    }
    for (int i = 0; i < job.roots; i++)
        json_array_append_new(roots, awaited(&job, &job.root[i]));
    stat_job_free(&job);
    return json_stat(t, all, roots, adapters, hosts(list),
                     list->here && !list->answers ? stat_hidden() : NULL);
}
