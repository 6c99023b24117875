/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The "adapters" of pvn-topo.schema.json. */
#include "topo/tool/load/counters.h"

#include <jansson.h>

#include "topo/tool/base/json.h"

static json_t *counter(const struct pvn_topo_look *first, const struct pvn_topo_look *now, int i,
                       int k)
{
    const struct pvn_topo_counter *c = &now->list[i].counters[k];
    json_t *o = json_object();
    json_object_set_new(o, "counter", json_text(c->name));
    json_object_set_new(o, "source", json_text(pvn_topo_counter_source_name(c->info->source)));
    json_object_set_new(o, "kind", json_text(pvn_topo_counter_kind_name(c->info->kind)));
    json_object_set_new(o, "value", json_integer((json_int_t)c->value));
    json_object_set_new(o, "grew",
                        first ? json_integer((json_int_t)pvn_topo_look_growth(first, now, i, k))
                              : json_null());
    return o;
}

json_t *json_adapters(const struct pvn_topo *topo, const struct pvn_topo_look *first,
                      const struct pvn_topo_look *now)
{
    json_t *list = json_array();
    for (int i = 0; i < now->n; i++) {
        const struct pvn_topo_counted *c = &now->list[i];
        bool rdma = c->rdma >= 0;
        json_t *o = json_object(), *counters = json_array();
        json_object_set_new(o, "device", rdma ? json_text(topo->rdmas[c->rdma].name) : json_null());
        json_object_set_new(
            o, "port", rdma ? json_integer(topo->rdmas[c->rdma].ports[c->port].num) : json_null());
        json_object_set_new(o, "interface",
                            c->net >= 0 ? json_text(topo->nets[c->net].name) : json_null());
        for (int k = 0; k < c->n; k++)
            json_array_append_new(counters, counter(first, now, i, k));
        json_object_set_new(o, "counters", counters);
        json_array_append_new(list, o);
    }
    return list;
}
