"""The pages of the Responses API over a real gateway and a scripted model."""
