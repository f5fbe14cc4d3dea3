"""Treat classes as tokens: find their texts, measure them, find close pairs, and compare classes of similar count."""
