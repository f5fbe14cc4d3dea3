"""The classes as tokens: their texts, their measurements, their closest pairs, and classes of equal frequency."""
