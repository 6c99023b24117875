/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "net-pvrdma/gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/addr.h"

/* The quality of a pair; larger is better, 0 cannot work. */
enum rank {
    IMPOSSIBLE,
    LINK_LOCAL, /* works only if both ends are on one link, which is not known: the last resort */
    ROUTED_V6,
    ROUTED_V4,
    SUBNET_V6,
    SUBNET_V4,
    RANKS
};

static bool is_v4(const struct pvn_gid_row *r)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return memcmp(r->raw, mapped, sizeof(mapped)) == 0;
}

static bool is_link_local(const struct pvn_gid_row *r)
{
    return (r->raw[0] == 0xfe && (r->raw[1] & 0xc0) == 0x80) ||
           (is_v4(r) && r->raw[12] == 169 && r->raw[13] == 254);
}

static bool is_zero(const struct pvn_gid_row *r)
{
    static const uint8_t zero[16];
    return memcmp(r->raw, zero, sizeof(zero)) == 0;
}

static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;
    if (memcmp(a, b, whole) != 0)
        return false;
    return rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0;
}

/* Without a known prefix the usual lengths are assumed: /24 and /64. */
static unsigned prefix_of(const struct pvn_gid_row *r)
{
    if (r->prefix > 0 && r->prefix <= 128)
        return r->prefix;
    return is_v4(r) ? 96 + 24 : 64;
}

static bool same_subnet(const struct pvn_gid_row *a, const struct pvn_gid_row *b)
{
    unsigned pa = prefix_of(a), pb = prefix_of(b);
    return same_bits(a->raw, b->raw, pa > pb ? pa : pb);
}

static enum rank judge(const struct pvn_gid_row *a, const struct pvn_gid_row *b, const char **why)
{
    *why = "";
    if (a->type != b->type) {
        *why = "different RoCE versions";
        return IMPOSSIBLE;
    }
    if (is_v4(a) != is_v4(b)) {
        *why = "IPv4 against IPv6";
        return IMPOSSIBLE;
    }
    if (is_link_local(a) != is_link_local(b)) {
        *why = "link-local against a routable address";
        return IMPOSSIBLE;
    }
    if (is_link_local(a))
        return LINK_LOCAL;
    if (same_subnet(a, b))
        return is_v4(a) ? SUBNET_V4 : SUBNET_V6;
    if (a->type == PVN_GID_ROCE_V1) {
        *why = "RoCE v1 does not cross routers";
        return IMPOSSIBLE;
    }
    return is_v4(a) ? ROUTED_V4 : ROUTED_V6;
}

static const char *type_text(unsigned type)
{
    return type == PVN_GID_ROCE_V2 ? "RoCE v2" : type == PVN_GID_ROCE_V1 ? "RoCE v1" : "IB";
}

const char *pvn_gid_text(const struct pvn_gid_row *row, char *buf, size_t cap)
{
    char addr[INET6_ADDRSTRLEN] = "?";
    inet_ntop(AF_INET6, row->raw, addr, sizeof(addr));
    snprintf(buf, cap, "%s (%s)", addr, type_text(row->type));
    return buf;
}

static void list(const struct pvn_gid_row *rows, int n, char *buf, size_t cap)
{
    char one[80];
    buf[0] = '\0';
    for (int i = 0; i < n; i++)
        pvn_str_append(buf, cap, "%s%u: %s", i ? ", " : "", rows[i].index,
                       pvn_gid_text(&rows[i], one, sizeof(one)));
    if (n == 0)
        pvn_str_append(buf, cap, "empty");
}

static const char *rank_text(enum rank r)
{
    static const char *const text[RANKS] = {"not possible",      "link-local, the last resort",
                                            "IPv6, routed",      "IPv4, routed",
                                            "IPv6, same subnet", "IPv4, same subnet"};
    return text[r];
}

/* Ranks pairs by type first (RoCE version 2 is routable, and switches are usually configured for it), then by
 * path. Among equal pairs the order of the rows decides. */
static int score(const struct pvn_gid_row *a, enum rank r)
{
    return r == LINK_LOCAL ? (int)r : (a->type == PVN_GID_ROCE_V2 ? RANKS : 0) + (int)r;
}

static void explain(const struct pvn_gid_row *a, const struct pvn_gid_row *b, enum rank r,
                    int pairs, int impossible, const char *why, struct pvn_gid_choice *out)
{
    char x[80], y[80];
    snprintf(out->text, sizeof(out->text), "GID %u %s to the peer's %u %s: %s", a->index,
             pvn_gid_text(a, x, sizeof(x)), b->index, pvn_gid_text(b, y, sizeof(y)), rank_text(r));
    if (pairs > 1)
        pvn_str_append(out->text, sizeof(out->text), "; best of %d pairs", pairs);
    if (impossible)
        pvn_str_append(out->text, sizeof(out->text), ", %d of them not possible (%s)", impossible,
                       why);
}

int pvn_gid_choose(const struct pvn_gid_row *mine, int nmine, const struct pvn_gid_row *theirs,
                   int ntheirs, bool connector, struct pvn_gid_choice *out, struct pvn_err *err)
{
    const struct pvn_gid_row *a = connector ? mine : theirs, *b = connector ? theirs : mine;
    int na = connector ? nmine : ntheirs, nb = connector ? ntheirs : nmine;
    int best = 0, bi = -1, bj = -1, impossible = 0;
    enum rank best_rank = IMPOSSIBLE;
    const char *last_why = "no pair";
    for (int i = 0; i < na; i++) {
        for (int j = 0; j < nb; j++) {
            const char *why;
            enum rank r = judge(&a[i], &b[j], &why);
            if (r == IMPOSSIBLE) {
                impossible++;
                last_why = why;
                continue;
            }
            if (score(&a[i], r) > best) {
                best = score(&a[i], r);
                best_rank = r;
                bi = i;
                bj = j;
            }
        }
    }
    out->local = connector ? bi : bj;
    out->remote = connector ? bj : bi;
    if (bi < 0) {
        char x[512], y[512];
        list(mine, nmine, x, sizeof(x));
        list(theirs, ntheirs, y, sizeof(y));
        pvn_err_set(err, -EADDRNOTAVAIL, "no GID of ours reaches one of the peer's (%s)",
                    nmine && ntheirs ? last_why : "a table is empty");
        pvn_err_add(err, "our GIDs are [%s]", x);
        pvn_err_add(err, "the peer's are [%s]", y);
        return -EADDRNOTAVAIL;
    }
    explain(&mine[out->local], &theirs[out->remote], best_rank, na * nb, impossible, last_why, out);
    return 0;
}

/* The reason why the policy forbids the row; NULL: it is allowed. */
static const char *gid_refused(const struct pvn_gid_row *r, const struct pvn_gid_policy *p)
{
    uint8_t range[16];
    unsigned bits;
    if (is_zero(r))
        return "empty";
    if (p->index >= 0)
        return r->index == p->index ? NULL : "another GID index is requested";
    if (r->type != PVN_GID_IB && p->roce_version &&
        p->roce_version != (r->type == PVN_GID_ROCE_V2 ? 2 : 1))
        return "another RoCE version is requested";
    if (p->family == AF_INET && !is_v4(r))
        return "not IPv4";
    if (p->family == AF_INET6 && is_v4(r))
        return "not IPv6";
    if (pvn_addr_parse_network(p->range, range, &bits) && !same_bits(r->raw, range, bits))
        return "outside the requested address range";
    return NULL;
}

int pvn_gid_filter(struct pvn_gid_row *rows, int n, const struct pvn_gid_policy *policy, char *text,
                   size_t cap)
{
    char one[80];
    int kept = 0;
    if (cap > 0)
        text[0] = '\0';
    for (int i = 0; i < n; i++) {
        const char *why = gid_refused(&rows[i], policy);
        if (!why)
            rows[kept++] = rows[i];
        else if (cap > 0 && !is_zero(&rows[i]))
            pvn_str_append(text, cap, "%s%u %s: %s", text[0] ? "; " : "", rows[i].index,
                           pvn_gid_text(&rows[i], one, sizeof(one)), why);
    }
    return kept;
}
