"""The classes as tokens: their texts, a row of measurements for each, the pairs that lie close, and matched classes."""
