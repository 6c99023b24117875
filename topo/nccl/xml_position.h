/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Line and column of an expat parser, both from 1. Expat 2.9 deprecates the calls that earlier
 * versions have (expat.h, XML_ATTR_DEPRECATED). */
#ifndef PVN_TOPO_NCCL_XML_POSITION_H
#define PVN_TOPO_NCCL_XML_POSITION_H

#include <expat.h>

#if XML_MAJOR_VERSION > 2 || (XML_MAJOR_VERSION == 2 && XML_MINOR_VERSION >= 9)

static inline int pvn_topo_xml_line(XML_Parser parser)
{
    return (int)XML_GetCurrentLineNumber64(parser);
}

static inline int pvn_topo_xml_column(XML_Parser parser)
{
    return (int)XML_GetCurrentColumnNumber64(parser) + 1;
}

#else

static inline int pvn_topo_xml_line(XML_Parser parser)
{
    return (int)XML_GetCurrentLineNumber(parser);
}

static inline int pvn_topo_xml_column(XML_Parser parser)
{
    return (int)XML_GetCurrentColumnNumber(parser) + 1;
}

#endif

#endif
