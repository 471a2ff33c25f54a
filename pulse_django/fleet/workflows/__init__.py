"""Batches and workflows as people see them: how far each is, what holds it, and which job needs which.

facts      the values
listing    the newest batches, and what holds them
graph      the jobs of one batch, and what they need
layers     in which order they stand, from left to right
critical   which of them took the time
needs      what one job needs, and what needs it
"""

from .facts import BatchFacts, Edge, Graph, GraphNode, Holder
from .graph import MOST_DRAWN, graph_of
from .listing import PAGE, batches, dead_letters_in, one_batch
from .needs import NeededBy, NeedFacts, needed_by, needs_of

__all__ = [
    "MOST_DRAWN",
    "PAGE",
    "BatchFacts",
    "Edge",
    "Graph",
    "GraphNode",
    "Holder",
    "NeedFacts",
    "NeededBy",
    "batches",
    "dead_letters_in",
    "graph_of",
    "needed_by",
    "needs_of",
    "one_batch",
]
