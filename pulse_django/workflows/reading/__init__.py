"""Batches and workflows as users see them: progress, dead letters and events that hold them, and needs of jobs.

facts      the values
listing    the newest batches, and what holds them
graph      the jobs of one batch, and what they need
layers     in which order they stand, from left to right
critical   which of them took the time
needs      what one job needs, and what needs it
"""

from .facts import BatchFacts as BatchFacts
from .facts import Edge as Edge
from .facts import Graph as Graph
from .facts import GraphNode as GraphNode
from .facts import Holder as Holder
from .graph import MOST_DRAWN as MOST_DRAWN
from .graph import graph_of as graph_of
from .listing import PAGE as PAGE
from .listing import batches as batches
from .listing import dead_letters_in as dead_letters_in
from .listing import one_batch as one_batch
from .needs import NeededBy as NeededBy
from .needs import NeedFacts as NeedFacts
from .needs import needed_by as needed_by
from .needs import needs_of as needs_of
